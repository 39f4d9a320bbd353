"""Weights that timm and torchvision published: where there are some, and fetching them safely."""

import contextlib
import os
import socket
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import huggingface_hub.constants
import timm
import torchvision

from stiffnet.errors import CheckpointError
from stiffnet.network.model_names import TORCHVISION
from stiffnet.words import first_line

PRETRAINED = "pretrained"  # what users write in the place of a weights file
TENSORS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # read by `torch.load` at each call
PATIENCE = 5.0  # seconds for one connection before a machine counts as offline


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
