"""The 1,797 handwritten digits that scikit-learn ships: real images, no download."""

import numpy as np

from stiffnet.data.images import ImageSet
from stiffnet.registry import check_known

TEST_EVERY = 5  # every fifth sample of each class is for testing


def digits(split: str | None = None) -> ImageSet:
    """Return the optical recognition of handwritten digits set: 8×8 pixels, ten classes.

    All of it, or its ``train`` or ``test`` part. The set has no official split; ours puts every
    fifth sample of each class into the test part.
    """
    from sklearn.datasets import load_digits

    if split is not None:
        check_known("split of digits", split, ("train", "test"))
    bunch = load_digits()
    labels = bunch.target.astype(np.int64)
    place = np.empty_like(labels)  # of a sample among those of its class
    for label in range(10):
        place[labels == label] = np.arange(np.count_nonzero(labels == label))
    testing = place % TEST_EVERY == TEST_EVERY - 1
    chosen = {None: slice(None), "train": ~testing, "test": testing}[split]
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)  # sixteen grey levels
    return ImageSet(
        name="digits" if split is None else f"digits-{split}",
        images=pixels[chosen, None],
        labels=labels[chosen],
        classes=tuple(str(digit) for digit in range(10)),
    )
