"""Real images that scikit-learn ships: handwritten digits, and tiles of its two photographs."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from stiffnet.data.images import ImageSet
from stiffnet.data.picture import NAMED, named_picture
from stiffnet.registry import check_known

SIDE = 64  # of a tile
TEST_EVERY = 5  # every fifth sample of each class is for testing


def digits(split: str | None = None) -> ImageSet:
    """Return the optical recognition of handwritten digits set: 8×8 pixels, ten classes.

    All of it, or its ``train`` or ``test`` part. The set has no official split; ours puts every
    fifth sample of each class into the test part.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)  # sixteen grey levels
    classes = tuple(str(digit) for digit in range(10))
    every = ImageSet("digits", pixels[:, None], bunch.target.astype(np.int64), classes)
    return every if split is None else _part(every, split)


def tiles(split: str = "test") -> ImageSet:
    """Return the ``train`` or ``test`` part of 120 tiles, whose classes are the photographs.

    Tiles do not overlap. What is over at the right and at the bottom is left out.
    """
    cut = [_cut(np.asarray(named_picture(name))) for name in NAMED]
    labels = np.repeat(np.arange(len(cut)), [len(each) for each in cut])
    return _part(ImageSet("tiles", np.concatenate(cut), labels, NAMED), split)


def _cut(picture: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return the tiles of a picture, row after row: (tile, channel, height, width)."""
    rows, columns = (side // SIDE for side in picture.shape[:2])
    cut = picture[: rows * SIDE, : columns * SIDE].reshape(rows, SIDE, columns, SIDE, 3)
    return cut.transpose(0, 2, 4, 1, 3).reshape(rows * columns, 3, SIDE, SIDE)


def _part(images: ImageSet, split: str) -> ImageSet:
    check_known(f"split of {images.name}", split, ("train", "test"))
    place = np.empty_like(images.labels)  # of a sample among those of its class
    for label in range(len(images.classes)):
        place[images.labels == label] = np.arange(np.count_nonzero(images.labels == label))
    testing = place % TEST_EVERY == TEST_EVERY - 1
    found = images.chosen(np.flatnonzero(testing == (split == "test")))
    return replace(found, name=f"{images.name}-{split}")
