"""Folders with a ``config.json`` and weights, as timm and transformers write them and publish."""

import contextlib
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from stiffnet.data.images import Preparation
from stiffnet.errors import CheckpointError, CorruptFileError
from stiffnet.files import read_file
from stiffnet.network.classes import imagenet, is_imagenet_tag
from stiffnet.network.create import create_model
from stiffnet.network.loaded import LoadedModel
from stiffnet.network.model_folder import TRAIN
from stiffnet.network.model_names import is_model_name
from stiffnet.network.pretrained import IMAGENET_MEAN, IMAGENET_STD, preparation_of
from stiffnet.network.processors import preparation_like
from stiffnet.network.state_dicts import StateDict
from stiffnet.network.weights import Facts, fill, read_state_dict
from stiffnet.words import first_line

CONFIG, PREPROCESSOR = "config.json", "preprocessor_config.json"
TRANSFORMERS = "transformers:"  # before the class of a network that transformers builds
LARGEST = 16 * 2**20  # bytes of a description


def is_described(folder: Path) -> bool:
    """Whether a folder says what network its weights are of, as timm and transformers do."""
    return (folder / CONFIG).is_file()


def is_of_timm(folder: Path) -> bool:
    """Whether the network that a folder describes is one of timm's."""
    return "architecture" in _read_json(folder / CONFIG)


def open_described(folder: Path, *, attention: str | None = None, key: str = "") -> LoadedModel:
    """Build the network that a folder describes, and fill it.

    Raises:
        CheckpointError: If it is not a network for images, the package that builds it is missing,
            or the weights do not fit.
        CorruptFileError: If the description is damaged.
    """
    config = _read_json(folder / CONFIG)
    if "architecture" in config:
        return _from_timm(folder, config, attention, key)
    if "model_type" not in config:
        raise CheckpointError(
            f"{folder / CONFIG} describes neither a network of timm (`architecture`) nor one of "
            "transformers (`model_type`). Give the network's name, and this folder as its weights."
        )
    if attention is not None:
        raise CheckpointError(
            f"{folder} is a network of transformers, and `attention` is attached by name to those "
            "of timm and torchvision alone. Leave it out, or use `stiffnet.attach` in Python."
        )
    return _from_transformers(folder, key)


def _from_timm(
    folder: Path, config: Mapping[str, Any], attention: str | None, key: str
) -> LoadedModel:
    name = config["architecture"]
    if not isinstance(name, str) or not is_model_name(name):
        raise CheckpointError(
            f"{folder / CONFIG} describes {name!r}, which this version of timm does not have. "
            "Update timm."
        )
    said = config.get("pretrained_cfg")
    said = said if isinstance(said, dict) else config
    arguments = config.get("model_args") or {}
    strange = sorted(arguments.keys() - {"img_size", "in_chans", "num_classes", "global_pool"})
    if strange:
        raise CheckpointError(
            f"{folder} is {name} built with {', '.join(strange)}, which is not possible by name. "
            "Build it in Python with timm, and use `stiffnet.measure`."
        )
    channels = said["input_size"][0] if "input_size" in said else None
    side = arguments.get("img_size")
    if isinstance(side, list) and len(side) == 2 and side[0] == side[1]:  # as timm writes it
        side = side[0]
    options: dict[str, Any] = {
        "num_classes": config.get("num_classes", said.get("num_classes")),
        "in_chans": arguments.get("in_chans", channels),
        "image_size": side,
        "attention": attention,
    }
    kinds = {"num_classes": int, "in_chans": int, "image_size": int, "attention": str}
    wrong = [k for k, v in options.items() if v is not None and not isinstance(v, kinds[k])]
    if wrong:
        raise CorruptFileError(
            f"{folder / CONFIG} has an impossible {wrong[0]}. Download it again."
        )
    model = create_model(name, **options)
    pooling = arguments.get("global_pool")
    if pooling not in (None, _pooling(model)):
        raise CheckpointError(
            f"{folder} is {name} built with global_pool={pooling!r}, which is not possible by "
            "name. Build it in Python with timm, and use `stiffnet.measure`."
        )
    state = read_state_dict(folder, key=key)
    facts = fill(model, state)
    try:
        own = preparation_of(model, name, in_chans=options["in_chans"])
        preparation = Preparation(
            input_size=tuple(said.get("input_size", own.input_size)),
            mean=tuple(map(float, said.get("mean", own.mean))),
            std=tuple(map(float, said.get("std", own.std))),
            crop=float(said.get("crop_pct", own.crop)),
            interpolation=str(said.get("interpolation", own.interpolation)),
            crop_mode=str(said.get("crop_mode", "center")),
        )
    except (TypeError, ValueError) as error:
        raise CorruptFileError(
            f"{folder / CONFIG} says impossible things of the images: {first_line(error)}. "
            "Download it again."
        ) from error
    classes = _timm_classes(config, said, options["num_classes"])
    made_by = {"weights": folder.name, **facts}
    return LoadedModel(model.eval(), name, preparation, classes, TRAIN, made_by, options)


def _pooling(model: nn.Module) -> str | None:
    """How a network of timm makes one vector of its positions; None where it does not say."""
    places = (model, getattr(model, "head", None))
    said = [getattr(place, "global_pool", None) for place in places]
    kinds = [kind if isinstance(kind, str) else getattr(kind, "pool_type", None) for kind in said]
    return next((kind for kind in reversed(kinds) if isinstance(kind, str)), None)


def _timm_classes(
    config: Mapping[str, Any], said: Mapping[str, Any], number: int | None
) -> tuple[str, ...]:
    names = config.get("label_names")
    if isinstance(names, list) and len(names) == number and all(isinstance(n, str) for n in names):
        return tuple(names)
    if is_imagenet_tag(str(said.get("tag") or "")) and number == len(imagenet()):
        return imagenet().names
    return ()


def _from_transformers(folder: Path, key: str) -> LoadedModel:
    try:
        import transformers
        from transformers.models.auto import modeling_auto
    except ImportError as error:
        raise CheckpointError(
            f"{folder} is a network of transformers, which is not installed. Install it with "
            "`pip install transformers`."
        ) from error
    with quiet_transformers():
        try:
            config = transformers.AutoConfig.from_pretrained(
                folder, trust_remote_code=False, local_files_only=True
            )
            classifiers = modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING
            known = classifiers if type(config) in classifiers else modeling_auto.MODEL_MAPPING
            build = _class_of(known[type(config)], config)
            if build.main_input_name != "pixel_values":
                raise CheckpointError(
                    f"{folder} is {build.__name__}, which does not read images. Measure it in "
                    "Python, with `stiffnet.measure` and batches of what it reads."
                )
            model = build(config)
        except CheckpointError:
            raise
        except Exception as error:  # of any kind: a description of strangers
            raise CheckpointError(
                f"transformers cannot build the network in {folder}: {first_line(error)}. Update "
                "transformers, or build it in Python and use `stiffnet.measure`."
            ) from error
    state = read_state_dict(folder, key=key)
    model, facts = _filled(model, state)
    preparation, assumed = _transformers_preparation(folder, config)
    if assumed:
        facts["preparation"] = "assumed"
    name, classes = f"{TRANSFORMERS}{type(model).__name__}", _transformers_classes(config)
    made_by = {"weights": folder.name, **facts}
    return LoadedModel(model.eval(), name, preparation, classes, TRAIN, made_by, {})


def _class_of(kinds: Any, config: Any) -> Any:
    """Of several classes for one description, such as DeiT's, the one that was saved."""
    several = kinds if isinstance(kinds, tuple) else (kinds,)
    saved = config.architectures or ()
    return next((kind for kind in several if kind.__name__ in saved), several[0])


def _filled(model: nn.Module, state: StateDict) -> tuple[nn.Module, Facts]:
    """Fill a network of transformers; files of earlier versions have names that it converts."""
    try:
        return model, fill(model, state)
    except CheckpointError as refusal:
        with quiet_transformers():
            try:
                converted, told = type(model).from_pretrained(  # type: ignore[attr-defined]
                    None,
                    config=model.config,
                    state_dict=dict(state.values),
                    output_loading_info=True,
                    dtype=torch.get_default_dtype(),  # as `build` does, whatever was saved
                )
            except Exception:  # of any kind: it does not fit, and ours says how
                raise refusal from None
        if any(told.values()):
            raise
        return converted, {"renamed": "as transformers does"}


def _transformers_classes(config: Any) -> tuple[str, ...]:
    names = [config.id2label.get(number) for number in range(len(config.id2label))]
    if not all(isinstance(name, str) for name in names):
        return ()
    if names == [f"LABEL_{number}" for number in range(len(names))]:
        return ()  # what it writes where nobody named them
    return tuple(names)


def _transformers_preparation(folder: Path, config: Any) -> tuple[Preparation, bool]:
    """What a network expects of its images, and whether that had to be assumed."""
    channels = int(getattr(config, "num_channels", 3))
    if not (folder / PREPROCESSOR).is_file():
        side = getattr(config, "image_size", 224)
        tall, wide = (side, side) if isinstance(side, int) else tuple(side)
        whole = Preparation((channels, tall, wide), IMAGENET_MEAN, IMAGENET_STD)
        if channels != len(whole.mean):
            whole = replace(whole, mean=(0.5,) * channels, std=(0.5,) * channels)
        return whole, True
    try:
        from transformers import AutoImageProcessor

        with quiet_transformers():
            processor = AutoImageProcessor.from_pretrained(
                folder, trust_remote_code=False, local_files_only=True
            )
            return preparation_like(processor, channels), False
    except Exception as error:  # of any kind: a description of strangers
        raise CheckpointError(
            f"{folder / PREPROCESSOR} prepares images in a way that is not known here: "
            f"{first_line(error)}. Prepare them in Python, and use `stiffnet.measure`."
        ) from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_file(path, "Check its permissions.", LARGEST))
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{path} is not JSON: {error}. Download it again.") from error
    if not isinstance(content, dict):
        raise CorruptFileError(f"{path} is not a description of a network. Download it again.")
    return content


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers from writing its own reports and bars; ours is one sentence."""
    from transformers.utils import logging as theirs

    level, bars = theirs.get_verbosity(), theirs.is_progress_bar_enabled()
    theirs.set_verbosity(logging.CRITICAL)
    theirs.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        theirs.set_verbosity(level)
        if bars:
            theirs.enable_progress_bar()
