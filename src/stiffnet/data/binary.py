"""Files of equal records of bytes, as the older image sets come: mapped, never unpacked."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from stiffnet.errors import DataError


def records(path: Path, size: int, hint: str) -> npt.NDArray[np.uint8]:
    """Map a file of records of `size` bytes, as an array of shape (record, byte).

    Raises:
        DataError: If the file is missing (`hint` then says what the folder should hold), cannot be
            read, is empty or is cut short.
    """
    if not path.is_file():
        raise DataError(f"{path} is not there. {hint}")
    length = path.stat().st_size
    if length == 0 or length % size:
        raise DataError(
            f"{path} has {length:,} bytes, which is no whole number of {size}-byte records. "
            "The file is cut short or is something else; fetch it again."
        )
    try:
        return np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, size)
    except OSError as error:
        raise DataError(
            f"{path} could not be read: {error.strerror or error}. Check its permissions."
        ) from error


def folder_of(folder: str | Path, usual: str) -> Path:
    """Return `folder`, or the folder of the `usual` name in it, as the archive unpacks to."""
    root = Path(folder)
    return root / usual if (root / usual).is_dir() else root


def class_names(path: Path, otherwise: tuple[str, ...]) -> tuple[str, ...]:
    """Read the names of the classes, one a line; without such a file there are known ones.

    More or fewer names than there should be, and a name that comes twice, are refused.
    """
    if not path.is_file():
        return otherwise
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} could not be read: {error}. Fetch it again.") from error
    names = tuple(line.strip() for line in lines if line.strip())
    if len(set(names)) != len(otherwise) or len(names) != len(otherwise):
        raise DataError(
            f"{path} holds {len(set(names))} different names in {len(names)} lines, and there "
            f"are {len(otherwise)} classes. Fetch it again, or take it away: they are known."
        )
    return names
