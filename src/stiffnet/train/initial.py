"""The network that a run begins with: random, or trained before and made fit for other data."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from stiffnet.data.classes import match_classes
from stiffnet.errors import RecipeError
from stiffnet.network.attach import attached
from stiffnet.network.attention_text import NONE, attach_text
from stiffnet.network.classes import imagenet, known_classes
from stiffnet.network.create import create_model
from stiffnet.network.detector import body_of, fill_body
from stiffnet.network.loaded import LoadedModel
from stiffnet.network.model_folder import Fact
from stiffnet.network.model_names import detector_parts, is_detector_name, is_model_name
from stiffnet.network.new_head import (
    head_shapes,
    is_called,
    named_tensors,
    outputs_in,
    with_new_head,
)
from stiffnet.network.open import open_model
from stiffnet.network.pretrained import PRETRAINED
from stiffnet.network.weights import read_weights
from stiffnet.train.recipe import DEFAULTS, Recipe
from stiffnet.words import few

SHOWN = 4  # names of tensors in a sentence


def initial_network(
    recipe: Recipe, outputs: int, classes: Sequence[str]
) -> tuple[LoadedModel, list[str]]:
    """Build the network of a recipe, as it is before the first step.

    A trained one keeps its head if its classes are those of the data, as far as they are known;
    else it gets a new one. Modules that it does not have yet are attached so that they change
    nothing at first.

    Args:
        recipe: Names the network, its weights and its attention.
        outputs: How many of them the data need.
        classes: What they stand for; nothing if they have no names.

    Returns:
        The network, and sentences on what was done to it.

    Raises:
        UnknownNameError: If nothing is called so.
        CheckpointError: If the weights cannot be used.
        RecipeError: If the recipe contradicts the network.
    """
    attention = None if recipe.attention == NONE else recipe.attention
    if is_model_name(recipe.model) and not recipe.weights:
        for field in ("backbone_rate", "frozen_stages", "frozen_norms"):
            if (value := getattr(recipe, field)) != DEFAULTS[field]:
                usual = f"{DEFAULTS[field]:g}" if field != "frozen_norms" else "false"
                raise RecipeError(
                    f"`{field}` is {value}, but {recipe.model} starts with random weights. Give "
                    f"trained ones with `--weights`, or set `{field}` to {usual}."
                )
        loaded = open_model(
            recipe.model,
            num_classes=outputs,
            image_size=recipe.image_size or None,
            attention=attention,
            seed=recipe.seed,
        )
        return loaded, []
    if is_detector_name(recipe.model) and not _is_whole(recipe):
        return _on_trained_backbone(recipe, attention, outputs), []
    loaded = _trained(recipe, attention, outputs)
    if attention and loaded.options.get("attention") and not is_model_name(recipe.model):
        raise RecipeError(
            f"{recipe.model} has the attention that it was trained with, and `attention` is "
            f"{attention!r}. Leave it out, or name the network."
        )
    notes = []
    if "other_keys" in loaded.made_by:
        notes.append(
            f"of {recipe.weights}, the state dict under {loaded.made_by['key']!r} was taken; there "
            f"is also {loaded.made_by['other_keys']}. To start from another one, save it to a file "
            "of its own."
        )
    if "renamed" in loaded.made_by:
        notes.append(f"names in the weights file were changed to fit: {loaded.made_by['renamed']}.")
    start = recipe.model if not recipe.weights else recipe.weights
    if not loaded.changes:  # a deployed network is refused by whoever trains it
        loaded, told = _with_head(loaded, start, outputs, classes, recipe.seed)
        notes += told
        if attention and not loaded.options.get("attention"):
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(recipe.seed)
                attach_text(loaded.model, attention, start="identity")
            loaded = replace(loaded, options={**loaded.options, "attention": attention})
    return loaded, notes


def fast_parameters(loaded: LoadedModel) -> set[str]:
    """Names of the parameters that learn at the full rate: of the head and of attached modules.

    Of a detector, all that is not its backbone is the head.
    """
    if is_detector_name(loaded.name):
        names = {id(p): name for name, p in loaded.model.named_parameters()}
        for parameter in body_of(loaded.model).parameters():
            del names[id(parameter)]
        found = set(names.values())
    else:
        found = set(head_shapes(loaded.name, loaded.options))
    for sits in attached(loaded.model):
        module = loaded.model.get_submodule(sits.name)
        had = {"weight", "bias"} if getattr(module, "replaces_norm", False) else set()
        found |= {f"{sits.name}.{name}" for name, _ in module.named_parameters() if name not in had}
    return found


def _trained(recipe: Recipe, attention: str | None, outputs: int) -> LoadedModel:
    """Open what a run starts from, with the head that it was trained with."""
    size = recipe.image_size or None
    if not is_model_name(recipe.model) or recipe.weights == PRETRAINED:
        return open_model(recipe.model, weights=recipe.weights or None, image_size=size)
    options: dict[str, Fact] = {"image_size": size}
    held = read_weights(Path(recipe.weights))
    number = outputs_in(held, head_shapes(recipe.model, options)) or outputs
    there = attention if attention and _holds(held, recipe.model, attention, options) else None
    return open_model(
        recipe.model,
        weights=recipe.weights,
        num_classes=number,
        image_size=size,
        attention=there,
    )


def _is_whole(recipe: Recipe) -> bool:
    """Whether weights are those of a whole detector, and not of its backbone."""
    if recipe.weights == PRETRAINED:
        return False
    held = read_weights(Path(recipe.weights))
    return outputs_in(held, head_shapes(recipe.model, {})) is not None


def _on_trained_backbone(recipe: Recipe, attention: str | None, outputs: int) -> LoadedModel:
    """Build a detector on a backbone with published weights, or with those of a classifier's file.

    Modules that the file holds are attached before it is loaded, and others afterwards.
    """
    options: dict[str, Any] = {"num_classes": outputs, "image_size": recipe.image_size or None}
    if recipe.weights == PRETRAINED:
        return open_model(
            recipe.model, weights=PRETRAINED, attention=attention, seed=recipe.seed, **options
        )
    backbone = detector_parts(recipe.model)[1]
    held = read_weights(Path(recipe.weights))
    there = attention if attention and _holds(held, backbone, attention, {}) else None
    trained = open_model(backbone, weights=recipe.weights, attention=there, adopt_classes=True)
    loaded = open_model(recipe.model, attention=there, seed=recipe.seed, **options)
    fill_body(loaded.model, trained.model.state_dict())
    if attention and not there:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(recipe.seed)
            attach_text(body_of(loaded.model), attention, start="identity")
    made_by = {"weights": f"of the backbone, {trained.made_by['weights']}"}
    return replace(loaded, made_by=made_by, options={**loaded.options, "attention": attention})


def _holds(
    held: Mapping[str, object], model: str, attention: str, options: Mapping[str, Fact]
) -> bool:
    """Whether a weights file holds the tensors of attached modules too."""
    plain, gated = (
        create_model(model, **options, attention=each).state_dict()  # type: ignore[arg-type]
        for each in (None, attention)
    )
    new = gated.keys() - plain.keys()
    return any(is_called(key, name) for key, _ in named_tensors(held) for name in new)


def _with_head(
    loaded: LoadedModel, start: str, outputs: int, classes: Sequence[str], seed: int
) -> tuple[LoadedModel, list[str]]:
    """Give a network a new head, unless it has the right one."""
    if classes and tuple(loaded.classes) == tuple(classes):
        return loaded, []
    fresh = with_new_head(loaded, outputs, seed=seed)
    head = list(head_shapes(loaded.name, loaded.options))
    before, after = loaded.model.state_dict(), fresh.model.state_dict()
    dropped = f"Its head ({few(head, SHOWN)}) was dropped, and a new one starts at random."
    if any(before[name].shape != after[name].shape for name in head):
        said = f"{start} has another number of outputs than the {outputs} that are needed."
        return fresh, [f"{said} {dropped}"]
    known = known_classes(loaded)
    if known is None or not classes:
        said = "nothing says whether they are the same classes, so its head is kept"
        return loaded, [f"{start} has {outputs} outputs, as many as the data have classes; {said}."]
    if match_classes(classes, known, numbers=known is imagenet()) == tuple(range(outputs)):
        return replace(loaded, classes=()), []
    return fresh, [f"{start} was trained on other classes, or in another order. {dropped}"]
