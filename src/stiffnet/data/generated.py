"""Images made up on the spot: stripes and checks under noise, for tests and first trials."""

import numpy as np
import numpy.typing as npt

from stiffnet.data.chance import Purpose, uniforms
from stiffnet.data.images import ImageSet
from stiffnet.errors import DataError
from stiffnet.registry import check_known

SIDE = 32
COUNT = 1000
MOST = 1_000_000  # three gigabytes
SPLITS = ("train", "test")
PATTERNS = ("rows", "columns", "checks")
PERIODS = (4, 8, 16)
CLASSES = ("plain", *(f"{pattern}-{period}" for pattern in PATTERNS for period in PERIODS))
AT_ONCE = 500  # images, to keep the memory for their random numbers small


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
