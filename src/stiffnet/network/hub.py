"""Networks and weights on the Hugging Face hub, ``hf-hub:ORG/NAME``: their folder on the disk."""

import os
import re
from pathlib import Path

import huggingface_hub
import huggingface_hub.errors

from stiffnet.errors import CheckpointError, StorageError
from stiffnet.network.pretrained import careful_download
from stiffnet.network.shards import NAMES
from stiffnet.words import first_line

HUB = "hf-hub:"
ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
DESCRIBED = ("config.json", "preprocessor_config.json")
SAFE, OTHER = ("*.safetensors*",), ("*.bin", "*.bin.index.json")  # the latter if there is no other


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
