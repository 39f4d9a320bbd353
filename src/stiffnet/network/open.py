"""Any network in evaluation mode: by its name, or from a folder, also one on the hub."""

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stiffnet.errors import CheckpointError
from stiffnet.network.create import create_model
from stiffnet.network.deployed import Change
from stiffnet.network.described_folder import is_described, is_of_timm, open_described
from stiffnet.network.folded_folder import restructured
from stiffnet.network.loaded import LoadedModel
from stiffnet.network.model_folder import FOLDED, MANIFEST, TRAIN, Fact, ModelFolder, read_folder
from stiffnet.network.model_names import is_model_name, unknown_model
from stiffnet.network.pretrained import (
    PRETRAINED,
    hub_folder,
    is_on_hub,
    preparation_of,
    published_classes,
)
from stiffnet.network.weights import fill, load_weights, outputs_of, read_state_dict


def open_model(
    spec: str | os.PathLike[str],
    *,
    weights: str | os.PathLike[str] | None = None,
    weights_key: str = "",
    num_classes: int | None = None,
    adopt_classes: bool = False,
    in_chans: int | None = None,
    image_size: int | None = None,
    attention: str | None = None,
    optional: Collection[str] = (),
    seed: int = 0,
) -> LoadedModel:
    """Build a network and fill it.

    Args:
        spec: A timm name (ours are among them), ``torchvision:NAME``, a folder that we, timm or
            transformers wrote, or one of these on the Hugging Face hub: ``hf-hub:ORG/NAME``, or
            ``ORG/NAME`` where that is not a path. A name wins over a folder of the same name; write
            ``./NAME`` for the folder.
        weights: None for a folder's own or random ones, ``"pretrained"``, or what `load_weights`
            takes; ``hf-hub:ORG/NAME`` too.
        weights_key: Which state dict of a checkpoint, as `load_weights` takes it.
        num_classes: Number of logits, where it is not the model's own.
        adopt_classes: Without a `num_classes`, give a named network as many logits as the weights
            file has.
        in_chans: Number of image channels, where it is not the model's own.
        image_size: Height and width of the images, where they are not the model's own.
        attention: A module for every step, as for `create_model`; a folder of ours knows its own.
        optional: Names of tensors that the weights may lack, such as a head's; they stay random.
        seed: Random seed of the weights.

    Raises:
        UnknownNameError: If nothing is called `spec`.
        CheckpointError: If the weights cannot be downloaded or do not fit.
    """
    name = os.fspath(spec)
    state = None
    if weights is not None and weights != PRETRAINED:
        state = read_state_dict(on_disk(weights), key=weights_key)
    elif weights_key and (weights == PRETRAINED or is_model_name(name)):
        raise CheckpointError(
            "A key chooses among the state dicts of a weights file, and no file is given. Give one "
            "as the weights, or leave out the key."
        )
    options: dict[str, Any] = {
        "num_classes": num_classes,
        "in_chans": in_chans,
        "image_size": image_size,
        "attention": attention,
    }
    if isinstance(spec, str) and is_model_name(name):
        loaded = _named(name, options, pretrained=weights == PRETRAINED, seed=seed)
        if adopt_classes and num_classes is None and state is not None:
            options["num_classes"] = outputs_of(loaded.model, state)
            if options["num_classes"] is not None:
                loaded = _named(name, options, pretrained=False, seed=seed)
    elif name and (is_on_hub(spec) or os.sep in name or Path(name).is_dir() or name != spec):
        loaded = _from_place(spec, weights, options, key=weights_key if state is None else "")
    else:
        raise unknown_model(name)
    if image_size is not None:
        channels = loaded.preparation.input_size[0]
        resized = replace(loaded.preparation, input_size=(channels, image_size, image_size))
        loaded = replace(loaded, preparation=resized)
    if state is None:
        return loaded
    facts = fill(loaded.model, state, optional=optional)
    if is_model_name(state.of) and _stem(state.of) != _stem(loaded.name):
        facts["said_to_be_of"] = state.of
    made_by: dict[str, Fact] = {"weights": _short(weights), **facts}
    return replace(loaded, made_by=made_by, classes=())  # a folder's are those of its own weights


def on_disk(spec: str | os.PathLike[str]) -> Path:
    """Return the place of weights or of a model folder; what is on the hub is downloaded."""
    return hub_folder(str(spec)) if is_on_hub(spec) else Path(spec)


def _stem(name: str) -> str:
    """A network's name without timm's tag of its weights: ``resnet50.a1_in1k`` is a ResNet-50."""
    return name.partition(".")[0]


def _short(spec: str | os.PathLike[str] | None) -> str:
    return str(spec) if spec is not None and is_on_hub(spec) else Path(spec or "").name


def _named(name: str, options: Mapping[str, Any], *, pretrained: bool, seed: int) -> LoadedModel:
    model = create_model(name, pretrained=pretrained, seed=seed, **options)
    preparation = preparation_of(model, name, in_chans=options["in_chans"])
    made_by: dict[str, Fact] = {"weights": PRETRAINED}
    if not pretrained:
        made_by = {"weights": "random", "seed": seed}
    classes = published_classes(name) if pretrained and options["num_classes"] is None else ()
    return LoadedModel(model.eval(), name, preparation, classes, TRAIN, made_by, dict(options))


def _from_place(
    spec: str | os.PathLike[str],
    weights: str | os.PathLike[str] | None,
    options: Mapping[str, Any],
    *,
    key: str,
) -> LoadedModel:
    """Open a folder, on the disk or on the hub: ours, timm's or transformers'."""
    place = on_disk(spec)
    if not is_described(place) or (place / MANIFEST).exists():
        if key:
            raise CheckpointError(
                f"{place} is a model folder of ours, which holds one network. Leave out the key."
            )
        return _from_folder(read_folder(place), weights, options)
    free = ("attention", "image_size") if is_of_timm(place) else ("attention",)
    for option, value in (("weights", weights), *options.items()):
        if value is not None and option not in free:
            raise CheckpointError(
                f"{spec} says itself what network it is, and has its weights. Leave out `{option}`."
            )
    loaded = open_described(place, attention=options["attention"], key=key)
    return replace(loaded, made_by={**loaded.made_by, "weights": _short(spec)})


def _from_folder(
    folder: ModelFolder, weights: str | os.PathLike[str] | None, given: Mapping[str, Any]
) -> LoadedModel:
    if weights == PRETRAINED:
        raise CheckpointError(
            f"{folder.path} has weights of its own. Leave out `pretrained`, or name the model "
            f"{folder.name} instead of the folder."
        )
    options = dict(folder.options)
    for key in ("num_classes", "in_chans"):
        if given[key] is not None and given[key] != options.get(key, given[key]):
            raise CheckpointError(
                f"{folder.path} contains a network with {key}={options[key]}, not {given[key]}. "
                f"Leave `{key}` out."
            )
    kinds = {"num_classes": int, "in_chans": int, "image_size": int, "attention": str}
    strange = sorted(options.keys() - kinds)
    if strange or not all(
        value is None or type(value) is kinds[key] for key, value in options.items()
    ):
        raise CheckpointError(
            f"{folder.path} was written with options that this version does not know: "
            f"{', '.join(strange) or options}. Update stiffnet."
        )
    if folder.form not in (TRAIN, FOLDED):
        raise CheckpointError(
            f"{folder.path} contains a network in the form {folder.form!r}, which this version "
            "does not know. Update stiffnet."
        )
    model = create_model(folder.name, **options)  # type: ignore[arg-type]  # checked just above
    changes: tuple[Change, ...] = ()
    if folder.form == FOLDED:
        model, changes = restructured(model, folder)
    if weights is None:
        load_weights(model, folder.weights)
    return LoadedModel(
        model.eval(),
        folder.name,
        folder.preparation,
        folder.classes,
        folder.form,
        folder.made_by,
        options,
        changes,
    )
