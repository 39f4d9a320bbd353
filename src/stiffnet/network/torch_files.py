"""torch's own formats, read as tensors and plain values: zip archives, and the legacy format.

A zip archive is read after a check of every part's sum. The legacy format, which published weights
still have, has no index and no checksums: how much memory to take, a pickle says. So another
process reads the file, as tensors and plain values only, with a limit of memory and of time, and
hands the tensors back as safetensors.
"""

import json
import pickletools
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from stiffnet.errors import CorruptFileError, StorageError, UnsafeFileError
from stiffnet.network import tensors_only
from stiffnet.network.tensors_only import (
    ANSWER,
    TENSORS,
    NotPlain,
    Passed,
    largest_memory,
    load_tensors,
)
from stiffnet.words import first_line

ZIP = b"PK\x03\x04"  # that a zip archive starts with
MAGIC = 0x1950A86A20F9469CFC6C  # torch's, in a pickle of its own before everything else
SHORTEST, PACE = 120.0, 2**20  # seconds for any file, and bytes in each second beyond


def read_zip(path: Path) -> object:
    """Return what a zip file of `torch.save` holds.

    Raises:
        UnsafeFileError: If the file names anything that could run code. It is not run.
        CorruptFileError: If the file is damaged, or is another zip archive.
    """
    _check_zip(path)
    try:
        if not path.name.endswith(".safetensors"):
            return load_tensors(path, mmap=True)
        with path.open("rb") as stream:  # a path would go to safetensors by its suffix
            return load_tensors(stream)
    except NotPlain as error:
        raise _unsafe(path, str(error)) from error
    except Exception as error:
        raise CorruptFileError(
            f"{path} is damaged: {first_line(error)}. Download it again."
        ) from error


def _check_zip(path: Path) -> None:
    """Refuse archives that are damaged, packed, scripted, or larger inside than outside."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
            larger = sum(entry.file_size for entry in entries) > path.stat().st_size
            broken = None if packed or larger else archive.testzip()
    except Exception as error:  # a hostile archive finds many ways
        raise CorruptFileError(
            f"{path} is cut short or damaged: {first_line(error)}. Download it again."
        ) from error
    names = [entry.filename for entry in entries]
    if any(name.endswith("/constants.pkl") for name in names):
        raise UnsafeFileError(
            f"{path} is a TorchScript archive, which holds code, so it was not opened. "
            "Save the state dict alone."
        )
    if packed or larger or not any(name.endswith("data.pkl") for name in names):
        raise CorruptFileError(
            f"{path} is a zip archive, but not one that `torch.save` wrote. Give a weights file."
        )
    if broken is not None:
        raise CorruptFileError(
            f"{path} is damaged: its part {broken} fails its checksum. Download it again."
        )


def is_legacy(start: bytes) -> bool:
    """Whether a file that starts so is of torch's legacy format; runs none of it."""
    try:
        for operation, value, _ in pickletools.genops(start[:64]):
            if operation.name not in ("PROTO", "FRAME"):
                return value == MAGIC
    except Exception:  # of any kind: it is not a pickle
        return False
    return False


def read_legacy(path: Path) -> object:
    """Return what a file of torch's legacy format holds; other values than tensors are left out.

    Raises:
        UnsafeFileError: If the file names anything that could run code. It is not run.
        CorruptFileError: If the file is damaged, or wants more memory or time than its size
            explains.
        StorageError: If there is no room for the tensors.
    """
    with tempfile.TemporaryDirectory(prefix="stiffnet-", ignore_cleanup_errors=True) as place:
        answer = _ask(path, Path(place))
        if "unsafe" in answer:
            raise _unsafe(path, answer["unsafe"])
        if "damaged" in answer:
            raise CorruptFileError(f"{path} is damaged: {answer['damaged']}. Download it again.")
        if "storage" in answer:
            raise StorageError(
                f"{path} could not be read by way of {tempfile.gettempdir()}: {answer['storage']}. "
                "Free some space there, or set TMPDIR to another folder."
            )
        if "content" not in answer:
            raise CorruptFileError(
                f"{path} was not read: it asks for more than "
                f"{largest_memory(path.stat().st_size) / 2**30:.1f} GiB of memory, which its size "
                "does not explain. It is damaged or malicious; download it from its publisher."
            )
        try:
            tensors = safetensors.torch.load_file(Path(place, TENSORS))
        except (safetensors.SafetensorError, OSError) as error:
            raise CorruptFileError(f"{path} could not be read: {error}. Try again.") from error
        return _rebuilt(answer["content"], tensors)


def _unsafe(path: Path, name: str) -> UnsafeFileError:
    """The error on a file that names something other than tensors and plain values."""
    what = f"{name}, " if name else ""
    return UnsafeFileError(
        f"{path} holds Python objects, {what}which could run code, so it was not opened. "
        "Save the state dict alone where you trust the file."
    )


def _ask(path: Path, place: Path) -> dict[str, Any]:
    """Run the other process, and return what it says; nothing if it was stopped."""
    limit = SHORTEST + path.stat().st_size / PACE
    program = [sys.executable, "-P", tensors_only.__file__, str(path.absolute()), str(place)]
    try:
        ended = subprocess.run(program, capture_output=True, timeout=limit, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise CorruptFileError(
            f"{path} was not read: it took longer than {limit:.0f} seconds, which its size does "
            "not explain. It is damaged or malicious; download it from its publisher."
        ) from error
    try:
        answer = json.loads((place / ANSWER).read_text())
    except (OSError, ValueError) as error:
        if ended.returncode < 0:
            return {}
        last = (ended.stderr.decode(errors="replace").strip().splitlines() or ["no reason"])[-1]
        raise CorruptFileError(f"{path} could not be read: {last}. Download it again.") from error
    assert isinstance(answer, dict)
    return answer


def _rebuilt(value: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> object:
    if "map" in value:
        return {key: _rebuilt(item, tensors) for key, item in value["map"].items()}
    if "tensor" in value:
        return tensors[str(value["tensor"])]
    passed = Passed()
    passed.kind = value["other"]
    return passed
