"""The network that a run begins with: random, or trained before and made fit for other data."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stiffnet.data.classes import match_classes
from stiffnet.errors import CheckpointError, RecipeError
from stiffnet.network.attach import new_parameters
from stiffnet.network.attention_text import NONE, attach_text
from stiffnet.network.classes import imagenet, known_classes
from stiffnet.network.create import create_model, seeded
from stiffnet.network.described_folder import TRANSFORMERS
from stiffnet.network.detector import body_of, fill_body
from stiffnet.network.loaded import LoadedModel, remarks_on
from stiffnet.network.model_folder import Fact
from stiffnet.network.model_names import (
    detector_parts,
    is_detector_name,
    is_model_name,
    unknown_model,
)
from stiffnet.network.new_head import (
    head_shapes,
    is_called,
    named_tensors,
    outputs_in,
    with_new_head,
)
from stiffnet.network.open import on_disk, open_model
from stiffnet.network.pretrained import PRETRAINED
from stiffnet.network.weights import read_state_dict, read_weights
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
    """
    if is_detector_name(recipe.model) and not is_model_name(recipe.model):
        raise unknown_model(recipe.model)
    attention = None if recipe.attention == NONE else recipe.attention
    if is_model_name(recipe.model) and not recipe.weights:
        if recipe.weights_key:
            raise RecipeError(
                f"`weights_key` is {recipe.weights_key!r}, but no weights are given. Give them "
                "with `--weights`, or leave out the key."
            )
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
    loaded, headless = _trained(recipe, attention, outputs)
    if loaded.name.startswith(TRANSFORMERS):
        raise RecipeError(
            f"{recipe.model} is a network of transformers, which is not built by a name, so that "
            "its run could not be opened again. Train it with the Trainer of transformers and "
            "`stiffnet.attach`, or name a network of timm or torchvision."
        )
    if attention and loaded.options.get("attention") and not is_model_name(recipe.model):
        raise RecipeError(
            f"{recipe.model} has the attention that it was trained with, and `attention` is "
            f"{attention!r}. Leave it out, or name the network."
        )
    notes = list(remarks_on(loaded))
    start = recipe.model if not recipe.weights else recipe.weights
    _refuse_unknown(loaded, start)
    if not loaded.changes:  # a deployed network is refused by whoever trains it
        loaded, told = _with_head(loaded, start, outputs, classes, recipe.seed, headless=headless)
        notes += told
        if attention and not loaded.options.get("attention"):
            with seeded(recipe.seed):
                attach_text(loaded.model, attention, start="identity")
            loaded = replace(loaded, options={**loaded.options, "attention": attention})
    return loaded, notes


def fast_parameters(loaded: LoadedModel) -> set[str]:
    """Names of the parameters that learn at the full rate: of the head and of attached modules.

    Of a detector, all that is not its backbone is the head.
    """
    if is_detector_name(loaded.name):
        body = {id(parameter) for parameter in body_of(loaded.model).parameters()}
        found = {name for name, p in loaded.model.named_parameters() if id(p) not in body}
    else:
        found = set(head_shapes(loaded.name, loaded.options))
    return found.union(new_parameters(loaded.model))


def _trained(recipe: Recipe, attention: str | None, outputs: int) -> tuple[LoadedModel, bool]:
    """Open what a run starts from, with the head that it was trained with.

    Returns:
        The network, and whether the weights have no head, so that its own is random.
    """
    size = recipe.image_size or None
    key = recipe.weights_key
    if not is_model_name(recipe.model) or recipe.weights == PRETRAINED:
        weights = recipe.weights or None
        return open_model(recipe.model, weights=weights, weights_key=key, image_size=size), False
    options: dict[str, Fact] = {"image_size": size}
    held = _held(recipe)
    head = head_shapes(recipe.model, options)
    number = outputs_in(held, head)
    there = attention if attention and _holds(held, recipe.model, attention, options) else None
    loaded = open_model(
        recipe.model,
        weights=recipe.weights,
        weights_key=key,
        num_classes=number or outputs,
        image_size=size,
        attention=there,
        optional=head if number is None else (),
    )
    return loaded, number is None


def _refuse_unknown(loaded: LoadedModel, start: str) -> None:
    """Refuse weights that are NaN or infinite: every step from them would be, too."""
    state = loaded.model.state_dict()
    bad = [k for k, v in state.items() if v.is_floating_point() and not bool(v.isfinite().all())]
    if bad:
        raise CheckpointError(
            f"{start} holds values that are NaN or infinite, in {few(bad, SHOWN)}, from which "
            "nothing can be learnt. Start from other weights."
        )


def _held(recipe: Recipe) -> Mapping[str, object]:
    """What the weights file of a recipe holds, or what is under its key."""
    place, key = on_disk(recipe.weights), recipe.weights_key
    return read_state_dict(place, key=key).values if key else read_weights(place)


def _is_whole(recipe: Recipe) -> bool:
    """Whether weights are those of a whole detector, and not of its backbone."""
    if recipe.weights == PRETRAINED:
        return False
    return outputs_in(_held(recipe), head_shapes(recipe.model, {})) is not None


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
    held = _held(recipe)
    there = attention if attention and _holds(held, backbone, attention, {}) else None
    trained = open_model(
        backbone,
        weights=recipe.weights,
        weights_key=recipe.weights_key,
        attention=there,
        adopt_classes=True,
    )
    loaded = open_model(recipe.model, attention=there, seed=recipe.seed, **options)
    fill_body(loaded.model, trained.model.state_dict())
    if attention and not there:
        with seeded(recipe.seed):
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
    loaded: LoadedModel,
    start: str,
    outputs: int,
    classes: Sequence[str],
    seed: int,
    *,
    headless: bool,
) -> tuple[LoadedModel, list[str]]:
    """Give a network a new head, unless it has the right one."""
    if headless:
        fresh = with_new_head(loaded, outputs, seed=seed)
        return fresh, [f"{start} holds a network without a head; a new one starts at random."]
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
