"""Images drawn on the spot, with a box around each thing: for first trials of detectors."""

import numpy as np

from stiffnet.data.boxes import BoxedImages
from stiffnet.data.chance import Purpose, uniforms
from stiffnet.data.images import ImageSet
from stiffnet.registry import check_known

SIDE = 96
CELL = 48  # pixels; each of the four cells of an image holds a thing or none
COUNTS = {"train": 96, "test": 48}  # images
CLASSES = ("square", "disc")


def shapes(split: str = "test") -> BoxedImages:
    """Draw squares and discs on noise, up to four in an image, none over another.

    Where they are, how large, and in which colours is random, but a function of the split and the
    image's index alone.
    """
    check_known("split of shapes", split, COUNTS)
    count, per_row = COUNTS[split], SIDE // CELL
    cells = per_row**2
    draws = uniforms(
        1, list(COUNTS).index(split), np.arange(count), 8 * cells + 3 * SIDE**2,
        purpose=Purpose.PICTURE,
    )  # fmt: skip
    images = draws[:, 8 * cells :].reshape(count, 3, SIDE, SIDE) * 80 + 40
    chances = draws[:, : 8 * cells].reshape(count, cells, 8)
    there = chances[..., 0] < 0.6
    there[:, 0] |= ~there.any(1)  # at least one
    disc = chances[..., 1] < 0.5
    radius = 5 + np.floor(chances[..., 2] * 14)  # up to 18, so that every place fits into a cell
    middle = radius[..., None] + np.floor(chances[..., 3:5] * (CELL - 2 * radius[..., None]))
    corner = np.stack(np.divmod(np.arange(cells), per_row), axis=1) * CELL
    middle += corner
    colours = chances[..., 5:] * 100 + 155
    rows, columns = np.mgrid[:SIDE, :SIDE] + 0.5
    for image, cell in np.argwhere(there):
        (y, x), r = middle[image, cell], radius[image, cell]
        down, right = np.abs(rows - y), np.abs(columns - x)
        on = down**2 + right**2 <= r**2 if disc[image, cell] else (down < r) & (right < r)
        images[image, :, on] = colours[image, cell]
    middle, radius = middle[there], radius[there, None]
    boxes = np.hstack([middle[:, ::-1] - radius, middle[:, ::-1] + radius])
    return BoxedImages(
        name=f"shapes-{split}",
        pictures=ImageSet(
            f"shapes-{split}", np.rint(images).astype(np.uint8), np.zeros(count, np.int64), ("",)
        ),
        sizes=np.full((count, 2), SIDE, np.int64),
        starts=np.concatenate([[0], np.cumsum(there.sum(1))]).astype(np.int64),
        boxes=boxes,
        labels=disc[there].astype(np.int64),
        areas=(2 * radius[:, 0]) ** 2,
        crowd=np.zeros(len(boxes), np.bool_),
        classes=CLASSES,
    )
