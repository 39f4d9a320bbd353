"""Tiles of the two photographs that scikit-learn carries: real pixels, no download."""

import numpy as np

from stiffnet.data.images import ImageSet
from stiffnet.data.picture import NAMED, named_picture
from stiffnet.registry import check_known

SIDE = 64
TEST_EVERY = 5  # every fifth tile of each photograph is for testing


def tiles(split: str = "test") -> ImageSet:
    """Return the ``train`` or ``test`` part of 120 tiles, whose classes are the photographs.

    Tiles do not overlap. What is over at the right and at the bottom is left out.
    """
    check_known("split of tiles", split, ("train", "test"))
    images, labels = [], []
    for label, name in enumerate(NAMED):
        picture = named_picture(name)
        assert picture is not None
        pixels = np.asarray(picture).transpose(2, 0, 1)
        rows, columns = (side // SIDE for side in pixels.shape[1:])
        cut = pixels[:, : rows * SIDE, : columns * SIDE].reshape(3, rows, SIDE, columns, SIDE)
        every = cut.transpose(1, 3, 0, 2, 4).reshape(rows * columns, 3, SIDE, SIDE)
        testing = np.arange(len(every)) % TEST_EVERY == TEST_EVERY - 1
        kept = every[testing if split == "test" else ~testing]
        images.append(kept)
        labels += [label] * len(kept)
    return ImageSet(
        name=f"tiles-{split}",
        images=np.concatenate(images),
        labels=np.array(labels, dtype=np.int64),
        classes=NAMED,
    )
