"""Any network in evaluation mode: by its name, or from a folder that we wrote."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from stiffnet.errors import CheckpointError
from stiffnet.network.create import create_model
from stiffnet.network.loaded import LoadedModel
from stiffnet.network.model_folder import FOLDED, TRAIN, Fact, ModelFolder, read_folder
from stiffnet.network.model_names import is_model_name, unknown_model
from stiffnet.network.preparation import preparation_of
from stiffnet.network.pretrained import PRETRAINED, published_classes
from stiffnet.network.structure import read_structure, restructured
from stiffnet.network.weights import load_weights


def open_model(
    spec: str | os.PathLike[str],
    *,
    weights: str | os.PathLike[str] | None = None,
    num_classes: int | None = None,
    in_chans: int | None = None,
    image_size: int | None = None,
    attention: str | None = None,
    seed: int = 0,
) -> LoadedModel:
    """Build a network and fill it.

    Args:
        spec: A timm name (ours are among them), ``torchvision:NAME``, or a folder that we wrote.
            A name wins over a folder of the same name; write ``./NAME`` for the folder.
        weights: None for a folder's own or random ones, ``"pretrained"``, or a weights file.
        num_classes: Number of logits, where it is not the model's own.
        in_chans: Number of image channels, where it is not the model's own.
        image_size: Height and width of the images, where they are not the model's own.
        attention: A module for every step, as for `create_model`; a folder knows its own.
        seed: Random seed of the weights.

    Raises:
        UnknownNameError: If nothing is called `spec`.
        CheckpointError: If the weights cannot be fetched or do not fit.
    """
    name = os.fspath(spec)
    if isinstance(spec, str) and is_model_name(name):
        pretrained = weights == PRETRAINED
        model = create_model(
            name,
            num_classes=num_classes,
            in_chans=in_chans,
            image_size=image_size,
            attention=attention,
            pretrained=pretrained,
            seed=seed,
        )
        preparation = preparation_of(model, name, in_chans=in_chans)
        made_by: Mapping[str, Fact] = {"weights": PRETRAINED if pretrained else "random"}
        if not pretrained:
            made_by = {**made_by, "seed": seed}
        classes = published_classes(name) if pretrained and num_classes is None else ()
        options = {
            "num_classes": num_classes,
            "in_chans": in_chans,
            "image_size": image_size,
            "attention": attention,
        }
        loaded = LoadedModel(model.eval(), name, preparation, classes, TRAIN, made_by, options)
    elif name and (Path(name).is_dir() or os.sep in name or not isinstance(spec, str)):
        loaded = _from_folder(
            read_folder(name), weights=weights, num_classes=num_classes, in_chans=in_chans
        )
    else:
        raise unknown_model(name)
    if image_size is not None:
        channels = loaded.preparation.input_size[0]
        resized = replace(loaded.preparation, input_size=(channels, image_size, image_size))
        loaded = replace(loaded, preparation=resized)
    if weights is None or weights == PRETRAINED:
        return loaded
    renamed = load_weights(loaded.model, weights)
    made_by = {"weights": Path(weights).name}
    if renamed:
        made_by["renamed"] = ", ".join(f"{theirs} to {ours}" for theirs, ours in renamed.items())
    return replace(loaded, made_by=made_by, classes=())  # a folder's are those of its own weights


def _from_folder(
    folder: ModelFolder,
    *,
    weights: str | os.PathLike[str] | None,
    num_classes: int | None,
    in_chans: int | None,
) -> LoadedModel:
    if weights == PRETRAINED:
        raise CheckpointError(
            f"{folder.path} has weights of its own. Leave out `pretrained`, or name the model "
            f"{folder.name} instead of the folder."
        )
    options = dict(folder.options)
    for key, value in (("num_classes", num_classes), ("in_chans", in_chans)):
        if value is not None and value != options.get(key, value):
            raise CheckpointError(
                f"{folder.path} contains a network with {key}={options[key]}, not {value}. "
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
    changes = read_structure(folder) if folder.form == FOLDED else ()
    model = create_model(folder.name, **options)  # type: ignore[arg-type]  # checked just above
    model = restructured(model, changes, folder)
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
