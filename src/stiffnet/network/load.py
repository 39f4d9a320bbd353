"""Any network by its name: timm's and ours, torchvision's, or a folder that we wrote."""

import contextlib
import fnmatch
import os
import socket
import urllib.parse
import urllib.request
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import timm
import timm.data
import torch
import torchvision
from torch import nn

from stiffnet import backbones
from stiffnet.data.images import Preparation
from stiffnet.errors import CheckpointError, UnknownNameError
from stiffnet.network.attach import attach
from stiffnet.network.deployed import Change
from stiffnet.network.model_folder import FOLDED, TRAIN, Fact, ModelFolder, read_folder
from stiffnet.network.spelling import NONE, read_attention
from stiffnet.network.structure import read_structure, restructured
from stiffnet.network.weights import load_weights as load_weights
from stiffnet.registry import unknown
from stiffnet.words import first_line

TORCHVISION = "torchvision:"
PRETRAINED = "pretrained"
RESERVED = {"model", "module", "example"}  # arguments of `attach` that text cannot give
IMAGENET_MEAN = timm.data.IMAGENET_DEFAULT_MEAN
IMAGENET_STD = timm.data.IMAGENET_DEFAULT_STD
TENSORS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # read by `torch.load` at each call
PATIENCE = 5.0  # seconds for one connection before a machine counts as offline


@dataclass(frozen=True)
class LoadedModel:
    """A network in evaluation mode, and what is known about it."""

    model: nn.Module
    name: str
    preparation: Preparation
    classes: tuple[str, ...]  # empty where nobody wrote them down
    form: str  # "train", as it is trained, or "folded"
    made_by: Mapping[str, Fact]
    options: Mapping[str, Fact]  # that `create_model` built it with
    changes: tuple[Change, ...] = ()  # how its structure differs from what `create_model` builds


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
        seed: Of random weights.

    Raises:
        UnknownNameError: If nothing is called `spec`.
        CheckpointError: If the weights cannot be had or do not fit.
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
        classes = _torchvision_classes(name) if pretrained and num_classes is None else ()
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
        raise UnknownNameError(_unknown_model(name))
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


def create_model(
    name: str,
    *,
    num_classes: int | None = None,
    in_chans: int | None = None,
    image_size: int | None = None,
    attention: str | None = None,
    pretrained: bool = False,
    seed: int = 0,
) -> nn.Module:
    """Build one network; random weights depend on `seed` alone.

    `name` is a timm name, ours included, or ``torchvision:NAME``. `num_classes` is the number of
    outputs and `in_chans` that of the images' channels; None leaves both as the network has them.
    `image_size` matters to networks that are built for one size, as vision transformers are;
    others take any. `attention` attaches a module to every step, as in ``"se"`` or
    ``"se,reduction=8,where=layer3.*"``: as its authors initialise it, or, with `pretrained`
    weights, so that it changes nothing at first. ``"asr:se"`` feeds it a learnt constant, and
    ``"asr:se+se"`` attaches one module behind the other. The backbone's own weights are the same
    with it and without.

    torch's own random numbers continue afterwards as if nothing had been drawn. Of torchvision,
    the classification models are known; they take three channels, whatever the images have.

    Raises:
        UnknownNameError: If neither timm nor torchvision nor we have a network of that name.
        CheckpointError: If the network cannot be built so, or has no pretrained weights here.
    """
    if not is_model_name(name):
        raise UnknownNameError(_unknown_model(name))
    for option, value in (
        ("num_classes", num_classes),
        ("in_chans", in_chans),
        ("image_size", image_size),
    ):
        if value is not None and value < 1:
            raise CheckpointError(f"`{option}` is {value}; a network needs at least 1.")
    build = _create_torchvision if name.startswith(TORCHVISION) else _create_timm
    sized = _sized(name, image_size)
    if pretrained:
        try:
            with _careful_download():
                model = build(name, num_classes, in_chans, sized, pretrained=True, seed=seed)
        except CheckpointError:
            raise
        except Exception as error:  # urllib's, httpx's, Hugging Face's, timm's RuntimeError, ...
            raise CheckpointError(_no_pretrained(name, error)) from error
    else:
        model = build(name, num_classes, in_chans, sized, pretrained=False, seed=seed)
    if attention is not None:
        with _seeded(seed):
            attach_spelled(model, attention, start="identity" if pretrained else "paper")
    return model


def attach_spelled(model: nn.Module, text: str, *, start: str) -> nn.Module:
    """Attach what a text says, as in ``"asr:se+se,reduction=8"``; ``"none"`` says nothing.

    Raises:
        UnknownNameError: If there is no such module or option.
        RecipeError: If the text cannot be read.
    """
    modules = [] if text == NONE else read_attention(text)
    for module, options in modules:
        for name in options.keys() & RESERVED:
            raise UnknownNameError(
                f"There is no option of {module!r} called {name!r}; leave it out."
            )
    for module, options in modules:
        given: dict[str, Any] = {"start": start, **options}
        attach(model, module, **given)
    return model


backbones.attach_with(attach_spelled)


def preparation_of(model: nn.Module, name: str, *, in_chans: int | None = None) -> Preparation:
    """What `model`, built from `name`, expects of its images.

    With another number of channels than the published weights had, each channel is normalised by
    the mean of theirs.
    """
    if name.startswith(TORCHVISION):
        published = _torchvision_preparation(name)
    else:
        config = timm.data.resolve_model_data_config(model)
        published = Preparation(
            config["input_size"],
            tuple(config["mean"]),
            tuple(config["std"]),
            config["crop_pct"],
            config["interpolation"],
        )
    channels, height, width = published.input_size
    channels = in_chans or channels
    mean, std = published.mean, published.std
    if channels != len(mean):
        mean, std = ((sum(values) / len(values),) * channels for values in (mean, std))
    return replace(published, input_size=(channels, height, width), mean=mean, std=std)


def model_names(pattern: str = "*") -> list[tuple[str, str]]:
    """Every name that `create_model` takes and `pattern` matches, as in a shell, and its source."""
    own = set(backbones.OWN_MODELS)
    named = [(name, "stiffnet") for name in backbones.OWN_MODELS]
    named += [(name, "timm") for name in timm.list_models() if name not in own]
    named += [(TORCHVISION + name, "torchvision") for name in _torchvision_names()]
    return [
        (name, source)
        for name, source in named
        if fnmatch.fnmatchcase(name, pattern)
        or fnmatch.fnmatchcase(name.removeprefix(TORCHVISION), pattern)
    ]


def is_model_name(name: str) -> bool:
    """Whether `create_model` would know `name`."""
    if name.startswith(TORCHVISION):
        return name.removeprefix(TORCHVISION) in _torchvision_names()
    architecture, dot, _ = name.partition(".")
    if not timm.is_model(architecture):
        return False
    return not dot or name in timm.list_models(f"{architecture}.*", include_tags=True)


def _sized(name: str, image_size: int | None) -> dict[str, int]:
    """Return the option that builds a network for another size, where it is built for one."""
    if image_size is None:
        return {}
    if name.startswith(TORCHVISION):
        return {"image_size": image_size} if "vit_" in name else {}
    config = timm.get_pretrained_cfg(name)
    return {"img_size": image_size} if config is not None and config.fixed_input_size else {}


def _create_timm(
    name: str,
    num_classes: int | None,
    in_chans: int | None,
    sized: Mapping[str, int],
    *,
    pretrained: bool,
    seed: int,
) -> nn.Module:
    with _seeded(seed):
        try:
            model: nn.Module = timm.create_model(
                name, pretrained=pretrained, num_classes=num_classes, in_chans=in_chans, **sized
            )
        except (TypeError, AssertionError, ValueError) as error:
            if pretrained:
                raise
            raise CheckpointError(
                f"timm cannot build {name} with num_classes={num_classes} and "
                f"in_chans={in_chans}: {error}. Leave out what this network does not take."
            ) from error
    return model


def _create_torchvision(
    name: str,
    num_classes: int | None,
    in_chans: int | None,
    sized: Mapping[str, int],
    *,
    pretrained: bool,
    seed: int,
) -> nn.Module:
    if in_chans not in (None, 3):
        raise CheckpointError(
            f"{name} takes 3 channels, and `in_chans` is {in_chans}. Leave it out: grey images "
            "are repeated over the channels."
        )
    options: dict[str, Any] = dict(sized)
    if num_classes is not None:
        options["num_classes"] = num_classes
    if pretrained:
        options["weights"] = _torchvision_weights(name)
        published = len(options["weights"].meta["categories"])
        if num_classes not in (None, published):
            raise CheckpointError(
                f"torchvision's weights for {name} have {published} classes, and `num_classes` is "
                f"{num_classes}. Leave it out, or leave out the pretrained weights."
            )
    with _seeded(seed), warnings.catch_warnings():
        # Two of them announce that their initialisation will change; the seed fixes today's.
        warnings.simplefilter("ignore", FutureWarning)
        model: nn.Module = torchvision.models.get_model(name.removeprefix(TORCHVISION), **options)
    return model


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
                f"{folder.path} holds a network with {key}={options[key]}, not {value}. "
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
            f"{folder.path} holds a network in the form {folder.form!r}, which this version does "
            "not know. Update stiffnet."
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


def _torchvision_names() -> list[str]:
    names: list[str] = torchvision.models.list_models(module=torchvision.models)
    return names


def _torchvision_weights(name: str) -> Any:
    return torchvision.models.get_model_weights(name.removeprefix(TORCHVISION)).DEFAULT


def _torchvision_classes(name: str) -> tuple[str, ...]:
    if not name.startswith(TORCHVISION):
        return ()
    return tuple(_torchvision_weights(name).meta["categories"])


def _torchvision_preparation(name: str) -> Preparation:
    try:
        published = _torchvision_weights(name).transforms()
        side, resized = int(published.crop_size[0]), int(published.resize_size[0])
        mean, std = tuple(published.mean), tuple(published.std)
        sampling = published.interpolation.value
        return Preparation((3, side, side), mean, std, side / max(side, resized), sampling)
    except (AttributeError, ValueError):  # a network without published weights
        return Preparation((3, 224, 224), IMAGENET_MEAN, IMAGENET_STD)


def _unknown_model(name: str) -> str:
    known = [known for known, _ in model_names()]
    if "." in name and timm.is_model(name.partition(".")[0]):
        known = timm.list_models(f"{name.partition('.')[0]}.*", include_tags=True)
    return unknown("model", name, known, listing="`stiffnet list models`")


def _no_pretrained(name: str, error: Exception) -> str:
    if isinstance(error, RuntimeError) and "No pretrained weights exist" in str(error):
        return f"Nobody has published pretrained weights for {name}. Give a weights file instead."
    reason = first_line(error)
    if isinstance(error, OSError):  # no network; Hugging Face and urllib say so at length
        reason = error.strerror or "there is no copy on this machine, and the network is closed"
    return (
        f"The pretrained weights of {name} could not be fetched: {reason}. Connect this machine "
        "to the network, or give a weights file instead."
    )


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Draw from the CPU's random numbers as of `seed`; give the caller's back."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


@contextlib.contextmanager
def _careful_download() -> Iterator[None]:
    """Let nobody unpickle code, and spare an offline machine most of a minute of retries."""
    constants = huggingface_hub.constants
    forced, offline = os.environ.get(TENSORS_ONLY), constants.HF_HUB_OFFLINE
    os.environ[TENSORS_ONLY] = "1"  # torchvision would unpickle whatever its cache holds
    constants.HF_HUB_OFFLINE = offline or not _is_reachable(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        if forced is None:
            del os.environ[TENSORS_ONLY]
        else:
            os.environ[TENSORS_ONLY] = forced


def _is_reachable(address: str) -> bool:
    """Whether a connection to the host can be made; behind a proxy, nobody can say."""
    parts = urllib.parse.urlsplit(address)
    if parts.scheme in urllib.request.getproxies() or parts.hostname is None:
        return True
    try:
        port = parts.port or (80 if parts.scheme == "http" else 443)
        with socket.create_connection((parts.hostname, port), timeout=PATIENCE):
            return True
    except OSError:
        return False
