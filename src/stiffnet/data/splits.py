"""Training and test images that belong together, and a part of them: the same classes in all."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from stiffnet.data.boxes import BoxedImages
from stiffnet.data.classes import composed
from stiffnet.data.copies import copies
from stiffnet.data.folder import TESTING, TRAINING, ImageFolder, image_folder, photographs
from stiffnet.data.images import ImageSet, spread
from stiffnet.errors import DataError
from stiffnet.words import few

Data = TypeVar("Data", ImageSet, ImageFolder, BoxedImages)

SHOWN = 5  # names of classes in a sentence
ONE_IN = 8  # photographs are held out where no folder says which
MOST = 100  # that are held out


def folder_splits(root: str | Path) -> tuple[ImageFolder, ImageFolder]:
    """Open ``ROOT/train`` and the first of ``ROOT/val``, ``valid``, ``validation`` and ``test``."""
    train = image_folder(split_folder(root, TRAINING), allow_empty=False)
    test = image_folder(split_folder(root, TESTING))  # a class may have no test images
    return train, agreeing(test, train.classes, f"{train.root}", f"{test.root}")


def photo_splits(root: str | Path) -> tuple[ImageFolder, ImageFolder]:
    """Open the photographs to train on, and those that are held out.

    Those are ``ROOT/train`` and the first of ``ROOT/val``, ``valid``, ``validation`` and ``test``.
    Where these folders are not there, one in eight of all photographs is held out, at most a
    hundred, evenly chosen by their names.

    Raises:
        DataError: As `photographs` does, if there is a single one, and if one that is held out is
            among the others too, as a copy or a link.
    """
    top = Path(root)
    train, test = (_first_folder(top, names) for names in (TRAINING, TESTING))
    if train is not None and test is not None:
        learnt, judged = photographs(train), photographs(test)
    else:
        every = photographs(top)
        if len(every) < 2:
            raise DataError(
                f"{top} holds a single picture, and one has to be held out. Put more of them there."
            )
        held = spread(every.labels, max(1, min(MOST, len(every) // ONE_IN)))
        kept = np.setdiff1d(np.arange(len(every)), held)
        learnt = replace(every.chosen(kept), name=f"{every.name}-train")
        judged = replace(every.chosen(held), name=f"{every.name}-test")
    for path, other in copies(learnt, judged):
        raise DataError(
            f"{path} is held out, and {other}, which is trained on, is the same picture. Take one "
            "of them away."
        )
    return learnt, judged


def split_folder(root: str | Path, names: Sequence[str]) -> Path:
    """Return the first folder in `root` that has one of these names; a DataError if none does."""
    top = Path(root)
    if not top.is_dir():
        raise DataError(f"{top} is not a folder. Give the one that holds `train` and `val`.")
    found = _first_folder(top, names)
    if found is None:
        raise DataError(
            f"{top} has no folder {' or '.join(f'`{name}`' for name in names)}. Put a folder for "
            f"each class into {top / names[0]}."
        )
    return found


def _first_folder(root: Path, names: Sequence[str]) -> Path | None:
    return next((root / name for name in names if (root / name).is_dir()), None)


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
