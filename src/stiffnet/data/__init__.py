"""The data sets by name: what `--data` takes, and what `stiffnet list data` shows."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from stiffnet.data.boxes import BoxedImages
from stiffnet.data.cifar import cifar10, cifar100
from stiffnet.data.coco import coco
from stiffnet.data.copies import copies
from stiffnet.data.digits import digits
from stiffnet.data.folder import TESTING, TRAINING, ImageFolder, image_folder
from stiffnet.data.generated import COUNT, generated
from stiffnet.data.images import ImageSet
from stiffnet.data.photos import photo_splits
from stiffnet.data.shapes import shapes
from stiffnet.data.splits import agreeing, folder_splits, split_folder
from stiffnet.data.stl10 import stl10
from stiffnet.data.tiles import tiles
from stiffnet.errors import DataError
from stiffnet.registry import Entry, Registry

Data = ImageSet | ImageFolder | BoxedImages
Opener = Callable[[str, str | None], Data]  # where it is, which split


def open_data(spec: str | os.PathLike[str], split: str | None = None) -> Data:
    """Open ``digits``, ``cifar10:DIR``, a folder of class folders, or what else `DATA` lists.

    Args:
        spec: A name in `DATA`, with its folder after a colon where it needs one, or a path. A name
            wins over a folder of the same name; write ``./NAME`` for the folder.
        split: ``"train"`` or ``"test"``, as `open_splits` finds them; of a folder also the name of
            another folder within it. None gives all the digits, a folder's own classes, and of
            the others the test images.

    Raises:
        UnknownNameError: If nothing is called `spec`.
        DataError: If what it names cannot be used.
    """
    name, place = _parted(spec)
    found = DATA[name].value(place, split)
    return _remarked(found, spec) if isinstance(found, ImageSet) else found


def open_labelled(spec: str | os.PathLike[str]) -> ImageSet | ImageFolder:
    """Open images with one label each, without a split; else as `open_data`.

    Raises:
        DataError: Also if the images have boxes instead.
    """
    found = open_data(spec)
    if isinstance(found, BoxedImages):
        raise DataError(
            f"{found.name} has boxes in its images, and here images with one label each are "
            "needed. Give other data."
        )
    return found


def open_splits(
    spec: str | os.PathLike[str],
) -> tuple[ImageSet, ImageSet] | tuple[ImageFolder, ImageFolder] | tuple[BoxedImages, BoxedImages]:
    """Open the training and the test images of one data set, with the same classes in both.

    Of a folder, ``train`` and the first of ``val``, ``valid``, ``validation`` and ``test`` in it;
    else `spec` and the errors are as in `open_data`. A split that is missing, and classes that
    differ, are refused.
    """
    name, place = _parted(spec)
    if name == "folder":
        return folder_splits(_needed("folder", place))
    if name == "photos":
        return photo_splits(_needed("photos", place))
    train, test = (DATA[name].value(place, split) for split in ("train", "test"))
    if isinstance(train, BoxedImages):
        assert isinstance(test, BoxedImages)
        return train, agreeing(_compared(train, test), train.classes, train.name, test.name)
    assert isinstance(train, ImageSet)
    assert isinstance(test, ImageSet)
    train = _remarked(train, spec)
    return train, agreeing(test, train.classes, train.name, test.name)


def spec_of_tests(spec: str | os.PathLike[str]) -> str:
    """Return what `open_data` takes, without a split, for the test images that `open_splits` opens.

    >>> spec_of_tests("cifar10:photos"), spec_of_tests("digits")
    ('cifar10:photos', 'digits:test')
    """
    name, place = _parted(spec)
    if name == "digits":
        return "digits:test"
    if name != "folder":
        return os.fspath(spec)
    return f"folder:{split_folder(_needed('folder', place), TESTING)}"


def as_photos(spec: str) -> str:
    """Return what opens a folder as photographs without classes; other data sets stay.

    >>> as_photos("folder:holidays"), as_photos("digits")
    ('photos:holidays', 'digits')
    """
    name, place = _parted(spec)
    return f"photos:{_needed('folder', place)}" if name == "folder" else spec


def _remarked(images: ImageSet, spec: str | os.PathLike[str]) -> ImageSet:
    """Say that a folder of the data set's name, which may have been meant, was not opened."""
    if not Path(spec).is_dir():
        return images
    note = f"`{spec}` is the data set of this name, and not the folder. Write `./{spec}` for that."
    return replace(images, notes=(note,))


def _compared(train: BoxedImages, test: BoxedImages) -> BoxedImages:
    """Say how many of the test images are trained on, whatever their names and boxes are there."""
    before, now = train.pictures, test.pictures
    if not (isinstance(before, ImageFolder) and isinstance(now, ImageFolder)):
        return test
    found = copies(before, now)
    if not found:
        return test
    note = (
        f"{len(found):,} of {len(test):,} test images are training images too, such as "
        f"{found[0][0]}, so that the precisions say less about others."
    )
    return replace(test, notes=(*test.notes, note))


def _parted(spec: str | os.PathLike[str]) -> tuple[str, str]:
    """Return a data set's name and its place."""
    text = os.fspath(spec)
    name, colon, place = text.partition(":")
    known = {entry.name for entry in DATA}
    is_path = Path(text).is_dir() or (os.sep in text and not colon)
    if text and name not in known and is_path:
        return "folder", text
    return name, place


def _open_digits(place: str, split: str | None) -> ImageSet:
    if place not in ("", "train", "test"):
        raise DataError(
            f"`digits` needs no folder, and {place!r} was given. Write `digits`, or `digits:test` "
            "for its test images."
        )
    if place and split and place != split:
        raise DataError(f"`digits:{place}` has no {split} images. Write `digits` for all of them.")
    return digits(split or place or None)


def _needed(name: str, place: str) -> Path:
    if not place:
        alone = ", or the path alone" if name == "folder" else ""
        raise DataError(f"`{name}` needs the folder with its files. Write `{name}:DIR`{alone}.")
    return Path(place)


def _in_files(name: str, reader: Callable[[Path, str], Data], summary: str) -> Entry[Opener]:
    """Return the entry of a data set whose files are in a folder."""

    def opener(place: str, split: str | None) -> Data:
        return reader(_needed(name, place), split or "test")

    return Entry(name, opener, summary)


def _embedded(name: str, maker: Callable[[str], Data], summary: str) -> Entry[Opener]:
    """Return the entry of a data set that needs no files."""

    def opener(place: str, split: str | None) -> Data:
        if place:
            raise DataError(f"`{name}` needs no folder, and {place!r} was given. Write `{name}`.")
        return maker(split or "test")

    return Entry(name, opener, summary)


def _open_generated(place: str, split: str | None) -> ImageSet:
    if place and not place.isdecimal():
        raise DataError(
            f"`generated` takes a number of images, and {place!r} was given. Write "
            "`generated`, or `generated:1000`."
        )
    return generated(split or "test", int(place or COUNT))


def _open_folder(place: str, split: str | None) -> ImageFolder:
    root = _needed("folder", place)
    if split is None:
        return image_folder(root)
    names = {"train": TRAINING, "test": TESTING}.get(split)
    return image_folder(split_folder(root, names) if names else root / split)


def _photos(place: Path, split: str) -> ImageFolder:
    train, test = photo_splits(place)
    return train if split == "train" else test


DATA: Registry[Opener] = Registry(
    "data set",
    [
        Entry(
            "digits", _open_digits, "1,797 handwritten digits, 8×8, grey; embedded; `digits:test`"
        ),
        _in_files("cifar10", cifar10, "`cifar10:DIR`, the official binary files; 32×32, colour"),
        _in_files(
            "cifar100",
            cifar100,
            "`cifar100:DIR`, the official binary files; 32×32, colour, 100 classes",
        ),
        _in_files("stl10", stl10, "`stl10:DIR`, the official binary files; 96×96, colour"),
        Entry("folder", _open_folder, "a path, or `folder:DIR`: images in one folder per class"),
        _in_files("coco", coco, "`coco:DIR`, boxes in COCO's layout, for detectors"),
        _embedded("shapes", shapes, "drawn squares and discs with boxes; 96×96, for detectors"),
        _in_files("photos", _photos, "`photos:DIR`: photographs of any size, without classes"),
        _embedded("tiles", tiles, "120 tiles of two photographs, 64×64, colour; embedded"),
        Entry("generated", _open_generated, "`generated:N`, stripes and checks under noise; 32×32"),
    ],
)
