"""The data sets by name: what `--data` takes, and what `stiffnet list data` shows."""

import os
from collections.abc import Callable
from pathlib import Path

from stiffnet.data.cifar import cifar10
from stiffnet.data.digits import digits
from stiffnet.data.folder import ImageFolder, image_folder
from stiffnet.data.images import ImageSet
from stiffnet.errors import DataError
from stiffnet.registry import Entry, Registry

Opener = Callable[[str, str | None], ImageSet | ImageFolder]  # where it is, which split


def open_data(spec: str | os.PathLike[str], split: str | None = None) -> ImageSet | ImageFolder:
    """Open ``digits``, ``cifar10:DIR``, or a folder of class folders.

    Args:
        spec: A name in `DATA`, with its folder after a colon where it needs one, or a path. A name
            wins over a folder of the same name; write ``./NAME`` for the folder.
        split: ``"train"`` or ``"test"``; of a folder, the name of the folder within it. None gives
            all the digits, CIFAR-10's test images, and a folder's own classes.

    Raises:
        UnknownNameError: If nothing is called `spec`.
        DataError: If what it names cannot be used.
    """
    text = os.fspath(spec)
    name, colon, place = text.partition(":")
    known = {entry.name for entry in DATA}
    is_path = Path(text).is_dir() or (os.sep in text and not colon)
    if text and name not in known and is_path:
        return _open_folder(text, split)
    return DATA[name].value(place, split)


def _open_digits(place: str, split: str | None) -> ImageSet:
    if place:
        raise DataError(f"`digits` needs no folder, and {place!r} was given. Write `digits`.")
    return digits(split)


def _open_cifar10(place: str, split: str | None) -> ImageSet:
    if not place:
        raise DataError("`cifar10` needs the folder with its files. Write `cifar10:DIR`.")
    return cifar10(place, split or "test")


def _open_folder(place: str, split: str | None) -> ImageFolder:
    if not place:
        raise DataError("`folder` needs its place. Write `folder:DIR`, or the path alone.")
    return image_folder(Path(place, split) if split else place)


DATA: Registry[Opener] = Registry(
    "data set",
    [
        Entry("digits", _open_digits, "1,797 handwritten digits, 8×8, grey; embedded"),
        Entry("cifar10", _open_cifar10, "`cifar10:DIR`, the official binary files; 32×32, colour"),
        Entry("folder", _open_folder, "a path, or `folder:DIR`: images in one folder per class"),
    ],
)
