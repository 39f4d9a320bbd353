"""Images drawn on the spot, as a function of the split and the index alone: for first trials."""

import numpy as np
import numpy.typing as npt

from stiffnet.data.boxes import BoxedImages
from stiffnet.data.chance import Purpose, uniforms
from stiffnet.data.images import ImageSet
from stiffnet.errors import DataError
from stiffnet.registry import check_known

SIDE = 32  # of a pattern
COUNT = 1000
MOST = 1_000_000  # three gigabytes
SPLITS = ("train", "test")
PATTERNS = ("rows", "columns", "checks")
PERIODS = (4, 8, 16)
CLASSES = ("plain", *(f"{pattern}-{period}" for pattern in PATTERNS for period in PERIODS))
AT_ONCE = 500  # images, to keep the memory for their random numbers small

SCENE = 96  # side of an image with shapes
CELL = 48  # pixels; each of the four cells of an image holds a thing or none
SCENES = {"train": 96, "test": 48}  # images
SHAPES = ("square", "disc")


def generated(split: str = "test", count: int = COUNT) -> ImageSet:
    """Make `count` colour images of ten classes, told apart by a pattern and its period.

    Where the pattern begins, its colours and the noise over it are random, but a function of the
    split and the sample's index alone. No shift and no mirror turns one class into another.
    """
    check_known("split of generated images", split, SPLITS)
    if not 1 <= count <= MOST:
        raise DataError(f"{count} images were asked for. Give 1 to {MOST:,}.")
    labels = np.arange(count) % len(CLASSES)
    images = np.empty((count, 3, SIDE, SIDE), np.uint8)
    for start in range(0, count, AT_ONCE):
        samples = np.arange(start, min(start + AT_ONCE, count))
        images[samples] = _drawn(samples, labels[samples], SPLITS.index(split))
    return ImageSet(f"generated-{split}", images, labels, CLASSES)


def _drawn(
    samples: npt.NDArray[np.int64], labels: npt.NDArray[np.int64], split: int
) -> npt.NDArray[np.uint8]:
    chances = uniforms(0, split, samples, 8 + 3 * SIDE * SIDE, purpose=Purpose.PICTURE)
    shift = (chances[:, :2] * SIDE).astype(np.int64)
    light, dark = chances[:, 2:5] * 80 + 135, chances[:, 5:8] * 80 + 40
    noise = chances[:, 8:].reshape(-1, 3, SIDE, SIDE) * 80 - 40
    pattern, period = np.divmod(labels - 1, len(PERIODS))
    half = np.array(PERIODS)[period][:, None] // 2
    rows, columns = ((np.arange(SIDE) + shift[:, [axis]]) // half % 2 for axis in (0, 1))
    on = np.where((pattern == 0)[:, None, None], rows[:, :, None], columns[:, None, :])
    on = np.where((pattern == 2)[:, None, None], rows[:, :, None] ^ columns[:, None, :], on)
    on = np.where((labels == 0)[:, None, None], 1, on)[:, None]
    colours = np.where(on, light[:, :, None, None], dark[:, :, None, None])
    return np.clip(np.rint(colours + noise), 0, 255).astype(np.uint8)


def shapes(split: str = "test") -> BoxedImages:
    """Draw squares and discs on noise, up to four in an image, none over another.

    Where they are, how large, and in which colours is random, but a function of the split and the
    image's index alone.
    """
    check_known("split of shapes", split, SCENES)
    count, per_row = SCENES[split], SCENE // CELL
    cells = per_row**2
    draws = uniforms(
        1, list(SCENES).index(split), np.arange(count), 8 * cells + 3 * SCENE**2,
        purpose=Purpose.PICTURE,
    )  # fmt: skip
    images = draws[:, 8 * cells :].reshape(count, 3, SCENE, SCENE) * 80 + 40
    chances = draws[:, : 8 * cells].reshape(count, cells, 8)
    there = chances[..., 0] < 0.6
    there[:, 0] |= ~there.any(1)  # at least one
    disc = chances[..., 1] < 0.5
    radius = 5 + np.floor(chances[..., 2] * 14)  # up to 18, so that every place fits into a cell
    middle = radius[..., None] + np.floor(chances[..., 3:5] * (CELL - 2 * radius[..., None]))
    corner = np.stack(np.divmod(np.arange(cells), per_row), axis=1) * CELL
    middle += corner
    colours = chances[..., 5:] * 100 + 155
    rows, columns = np.mgrid[:SCENE, :SCENE] + 0.5
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
        sizes=np.full((count, 2), SCENE, np.int64),
        starts=np.concatenate([[0], np.cumsum(there.sum(1))]).astype(np.int64),
        boxes=boxes,
        labels=disc[there].astype(np.int64),
        areas=(2 * radius[:, 0]) ** 2,
        crowd=np.zeros(len(boxes), np.bool_),
        classes=SHAPES,
    )
