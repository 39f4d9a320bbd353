"""Photographs in a folder, ``ROOT/**/*.jpg``, whatever they show: one class for all of them."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from stiffnet.data.copies import copies
from stiffnet.data.folder import SUFFIXES, TESTING, TRAINING, ImageFolder, images_within, reading
from stiffnet.data.images import spread
from stiffnet.errors import DataError

CLASS = "photo"
ONE_IN = 8  # photographs are held out where no folder says which
MOST = 100  # that are held out


def photographs(root: str | os.PathLike[str]) -> ImageFolder:
    """Find the photographs below a folder, sorted by path; none is opened yet.

    Raises:
        DataError: If there is no such folder, or it has no pictures; if a link leaves it.
    """
    top = Path(root)
    if not top.is_dir():
        raise DataError(f"{top} is not a folder. Give the one that holds the photographs.")
    with reading(top):
        files, unread = images_within(top, top)
    if not files:
        raise DataError(f"{top} holds no pictures. Put {', '.join(SUFFIXES)} files there.")
    labels = np.zeros(len(files), dtype=np.int64)
    return ImageFolder(top.resolve().name, top, tuple(files), labels, (CLASS,), tuple(unread))


def photo_splits(root: str | os.PathLike[str]) -> tuple[ImageFolder, ImageFolder]:
    """Open the photographs to train on, and those that are held out.

    Those are ``ROOT/train`` and the first of ``ROOT/val``, ``valid``, ``validation`` and ``test``.
    Where these folders are not there, one in eight of all photographs is held out, at most a
    hundred, evenly chosen by their names.

    Raises:
        DataError: As `photographs` does, if there is a single one, and if one that is held out is
            among the others too, as a copy or a link.
    """
    top = Path(root)
    train, test = (
        next((top / name for name in names if (top / name).is_dir()), None)
        for names in (TRAINING, TESTING)
    )
    if train is not None and test is not None:
        return _apart(photographs(train), photographs(test))
    every = photographs(top)
    if len(every) < 2:
        raise DataError(
            f"{top} holds a single picture, and one has to be held out. Put more of them there."
        )
    held = spread(every.labels, max(1, min(MOST, len(every) // ONE_IN)))
    kept = np.setdiff1d(np.arange(len(every)), held)
    learnt, judged = (
        replace(every.chosen(chosen), name=f"{every.name}-{split}")
        for split, chosen in (("train", kept), ("test", held))
    )
    return _apart(learnt, judged)


def _apart(train: ImageFolder, test: ImageFolder) -> tuple[ImageFolder, ImageFolder]:
    """Return both, unless a file of one has the content of a file of the other."""
    for path, other in copies(train, test):
        raise DataError(
            f"{path} is held out, and {other}, which is trained on, is the same picture. Take one "
            "of them away."
        )
    return train, test
