"""Training and test images that belong together, and a part of them: the same classes in all."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from stiffnet.data.boxes import BoxedImages
from stiffnet.data.classes import composed
from stiffnet.data.folder import TESTING, TRAINING, ImageFolder, image_folder
from stiffnet.data.images import ImageSet, spread
from stiffnet.errors import DataError
from stiffnet.words import few

Data = TypeVar("Data", ImageSet, ImageFolder, BoxedImages)

SHOWN = 5  # names of classes in a sentence


def folder_splits(root: str | Path) -> tuple[ImageFolder, ImageFolder]:
    """Open ``ROOT/train`` and the first of ``ROOT/val``, ``valid``, ``validation`` and ``test``."""
    train = image_folder(split_folder(root, TRAINING), allow_empty=False)
    test = image_folder(split_folder(root, TESTING))  # a class may have no test images
    return train, agreeing(test, train.classes, f"{train.root}", f"{test.root}")


def split_folder(root: str | Path, names: Sequence[str]) -> Path:
    """Return the first folder in `root` that has one of these names; a DataError if none does."""
    top = Path(root)
    if not top.is_dir():
        raise DataError(f"{top} is not a folder. Give the one that holds `train` and `val`.")
    for name in names:
        if (top / name).is_dir():
            return top / name
    raise DataError(
        f"{top} has no folder {' or '.join(f'`{name}`' for name in names)}. Put a folder for each "
        f"class into {top / names[0]}."
    )


def agreeing(test: Data, classes: Sequence[str], here: str, there: str) -> Data:
    """Return the test images with labels that count through `classes`: names are what is matched.

    `classes` are those that the network was, or will be, trained with. The message says that `here`
    holds them, and `there` the test images.

    Raises:
        DataError: If a class is in one of them only; it names all such classes, of both.
    """
    missing = [name for name in classes if name not in set(test.classes)]
    extra = [name for name in test.classes if name not in set(classes)]
    if missing or extra:
        only = [
            f"only {place} has {few(map(repr, names), SHOWN)}"
            for place, names in ((here, missing), (there, extra))
            if names
        ]
        alike = {composed(name) for name in missing} & {composed(name) for name in extra}
        advice = (
            f"{few(map(repr, sorted(alike)), SHOWN)} looks the same in both, but is written in two "
            "Unicode forms (NFC and NFD). Rename the folders of one."
            if alike
            else "Give both the same classes, by name."
        )
        raise DataError(f"The classes differ: {', and '.join(only)}. {advice}")
    if tuple(test.classes) == tuple(classes):
        return test
    number = {name: label for label, name in enumerate(classes)}
    mapped = np.array([number[name] for name in test.classes], dtype=np.int64)
    return replace(test, labels=mapped[test.labels], classes=tuple(classes))


def subset(images: Data, count: int) -> Data:
    """Return `count` of the images, evenly chosen: see `spread`. The classes stay all of them.

    Raises:
        DataError: If there are fewer images, or not one for each class would be left.
    """
    if count > len(images):
        raise DataError(
            f"{images.name} has {len(images):,} images, and {count:,} were asked for. Ask for at "
            "most as many as there are."
        )
    boxed = isinstance(images, BoxedImages)  # whose labels are those of boxes
    if not boxed and count < len(images.classes):
        raise DataError(
            f"{count:,} images were asked for of {images.name}, which has {len(images.classes):,} "
            "classes. Ask for at least one image per class."
        )
    labels = np.zeros(len(images), np.int64) if boxed else images.labels
    return images.chosen(spread(labels, count))
