"""What was published with a network: weights, classes, what it expects of its images.

timm and torchvision are asked by a network's name; what is on the Hugging Face hub,
``hf-hub:ORG/NAME``, becomes a folder on the disk. All of it is fetched safely.
"""

import contextlib
import os
import re
import socket
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import huggingface_hub.errors
import timm
import timm.data
import torchvision
from torch import nn

from stiffnet.data.images import Preparation
from stiffnet.errors import CheckpointError, StorageError
from stiffnet.network.model_names import TORCHVISION, is_classifier_name, is_detector_name
from stiffnet.network.shards import NAMES
from stiffnet.words import first_line

PRETRAINED = "pretrained"  # what users write in the place of a weights file
TENSORS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # read by `torch.load` at each call
PATIENCE = 5.0  # seconds for one connection before a machine counts as offline
IMAGENET_MEAN = timm.data.IMAGENET_DEFAULT_MEAN
IMAGENET_STD = timm.data.IMAGENET_DEFAULT_STD
HUB = "hf-hub:"
ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
DESCRIBED = ("config.json", "preprocessor_config.json")
SAFE, OTHER = ("*.safetensors*",), ("*.bin", "*.bin.index.json")  # the latter if there is no other


@contextlib.contextmanager
def fetching(name: str) -> Iterator[None]:
    """Let the code inside fetch the published weights of a network.

    Nothing that it fetches is unpickled as code.

    Raises:
        CheckpointError: If there are none, or they cannot be fetched.
    """
    if not _is_published(name):
        raise CheckpointError(
            f"Nobody has published pretrained weights for {name}. Give a weights file instead."
        )
    try:
        with careful_download():
            yield
    except CheckpointError:
        raise
    except Exception as error:  # urllib's, httpx's, Hugging Face's, timm's RuntimeError, ...
        reason = first_line(error)
        if isinstance(error, OSError):  # no network; Hugging Face and urllib say so at length
            reason = error.strerror or "there is no copy on this machine, and it is offline"
        raise CheckpointError(
            f"The pretrained weights of {name} could not be fetched: {reason}. Connect this "
            "machine to the network, or give a weights file instead."
        ) from error


def torchvision_weights(name: str) -> Any:
    """Return torchvision's record of the weights that it publishes for a network."""
    return torchvision.models.get_model_weights(name.removeprefix(TORCHVISION)).DEFAULT


def published_classes(name: str) -> tuple[str, ...]:
    """Return the class names that torchvision keeps with its weights; timm keeps none."""
    if not name.startswith(TORCHVISION):
        return ()
    return tuple(torchvision_weights(name).meta["categories"])


def preparation_of(model: nn.Module, name: str, *, in_chans: int | None = None) -> Preparation:
    """What `model`, built from `name`, expects of its images.

    With another number of channels than the published weights had, each channel is normalised by
    the mean of theirs.
    """
    if name.startswith(TORCHVISION) or is_detector_name(name):
        published = _torchvision_preparation(model, name)
    else:
        config = timm.data.resolve_model_data_config(model)
        published = Preparation(
            config["input_size"],
            tuple(config["mean"]),
            tuple(config["std"]),
            config["crop_pct"],
            config["interpolation"],
            config["crop_mode"],
        )
    channels, height, width = published.input_size
    channels = in_chans or channels
    mean, std = published.mean, published.std
    if channels != len(mean):
        mean, std = ((sum(values) / len(values),) * channels for values in (mean, std))
    return replace(published, input_size=(channels, height, width), mean=mean, std=std)


def _torchvision_preparation(model: nn.Module, name: str) -> Preparation:
    own: Any = getattr(model, "transform", None)
    if own is not None and not is_classifier_name(name):  # a detector normalises images itself
        width, height = own.fixed_size or (own.min_size[-1], own.min_size[-1])
        return Preparation((3, height, width), (0.0,) * 3, (1.0,) * 3)
    try:
        published = torchvision_weights(name).transforms()
        resized = int(published.resize_size[0])
        side = int(getattr(published, "crop_size", [resized])[0])  # segmenters do not crop
        mean, std = tuple(published.mean), tuple(published.std)
        sampling = published.interpolation.value
        return Preparation((3, side, side), mean, std, side / max(side, resized), sampling)
    except (AttributeError, ValueError):  # a network without published weights
        return Preparation((3, 224, 224), IMAGENET_MEAN, IMAGENET_STD)


def _is_published(name: str) -> bool:
    if not name.startswith(TORCHVISION):
        return bool(timm.models.is_model_pretrained(name))
    return len(torchvision.models.get_model_weights(name.removeprefix(TORCHVISION))) > 0


@contextlib.contextmanager
def careful_download() -> Iterator[None]:
    """Unpickle tensors only, and spare an offline machine most of a minute of retries."""
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
    """Whether a connection to the host can be made; behind a proxy, it is assumed to be."""
    parts = urllib.parse.urlsplit(address)
    if parts.scheme in urllib.request.getproxies() or parts.hostname is None:
        return True
    try:
        port = parts.port or (80 if parts.scheme == "http" else 443)
        with socket.create_connection((parts.hostname, port), timeout=PATIENCE):
            return True
    except OSError:
        return False


def is_on_hub(spec: str | os.PathLike[str]) -> bool:
    """Whether something is meant to be on the hub: by its prefix, or ``ORG/NAME`` and no path."""
    if not isinstance(spec, str) or spec.startswith(HUB):
        return isinstance(spec, str)
    is_path = os.path.lexists(spec) or spec.startswith((".", "~")) or Path(spec).is_absolute()
    return bool(ID.fullmatch(spec)) and not is_path


def hub_folder(spec: str) -> Path:
    """Return the folder with a network's description and weights, downloaded if need be.

    Without a network the copy in Hugging Face's cache is used, if there is one.

    Raises:
        CheckpointError: If it cannot be had, and `spec` says that it is on the hub.
        StorageError: Likewise, if `spec` may also be meant as a path.
    """
    name, _, revision = spec.removeprefix(HUB).partition("@")
    if not ID.fullmatch(spec.removeprefix(HUB)):
        raise CheckpointError(
            f"{spec} does not name a network on the Hugging Face hub. Write `{HUB}ORG/NAME`."
        )
    try:
        with careful_download():
            folder = _snapshot(name, revision or None, SAFE)
            if not any((folder / each).is_file() for each in NAMES if "safetensors" in each):
                folder = _snapshot(name, revision or None, OTHER)
    except Exception as error:  # httpx's, Hugging Face's, the system's
        raise _not_there(spec, name, error) from error
    return folder


def _snapshot(name: str, revision: str | None, files: tuple[str, ...]) -> Path:
    constants = huggingface_hub.constants
    found = huggingface_hub.snapshot_download(
        name,
        revision=revision,
        cache_dir=constants.HF_HUB_CACHE,
        allow_patterns=[*DESCRIBED, *files],
        local_files_only=constants.HF_HUB_OFFLINE,
    )
    return Path(found)


def _not_there(spec: str, name: str, error: Exception) -> CheckpointError | StorageError:
    offline = isinstance(error, huggingface_hub.errors.LocalEntryNotFoundError | ConnectionError)
    reason = first_line(error)
    if offline:
        reason = "there is no copy in the cache of this machine, and it is offline"
    elif isinstance(error, huggingface_hub.errors.RepositoryNotFoundError):
        reason = "there is no such repository, or it is not open to you"
    if spec.startswith(HUB):
        return CheckpointError(
            f"{name} could not be downloaded from the Hugging Face hub: {reason}. Connect this "
            "machine to the network, or give a folder or a file instead."
        )
    return StorageError(
        f"{spec} is neither a path nor can it be downloaded from the Hugging Face hub: {reason}. "
        "Check the path, or connect this machine to the network."
    )
