"""torch's zip checkpoints: read as tensors and plain values, after a check of every part's sum."""

import zipfile
from pathlib import Path

from stiffnet.errors import CorruptFileError, UnsafeFileError
from stiffnet.network.legacy import unsafe
from stiffnet.network.tensors_only import NotPlain, load_tensors
from stiffnet.words import first_line

MARK = b"PK\x03\x04"  # that a zip archive starts with


def read_zip(path: Path) -> object:
    """Return what a zip file of `torch.save` holds.

    Raises:
        UnsafeFileError: If the file names anything that could run code. It is not run.
        CorruptFileError: If the file is damaged, or is another zip archive.
    """
    _check(path)
    try:
        if not path.name.endswith(".safetensors"):
            return load_tensors(path, mmap=True)
        with path.open("rb") as stream:  # a path would go to safetensors by its suffix
            return load_tensors(stream)
    except NotPlain as error:
        raise unsafe(path, str(error)) from error
    except Exception as error:
        raise CorruptFileError(
            f"{path} is damaged: {first_line(error)}. Download it again."
        ) from error


def _check(path: Path) -> None:
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
