"""Quantiles of indices from counts in bins, so that a data set of any size needs the same memory.

Bins are equal in the logarithm. The middle of a bin is within 10**(1/512) - 1 = 0.45 % of every
value in it; indices below 1e-8 or above 1e8 share one bin at either end.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stiffnet.stiffness.given import Floats

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

_PER_DECADE = 256
_LOWEST, _HIGHEST = -8, 8  # powers of ten
BINS = _PER_DECADE * (_HIGHEST - _LOWEST) + 2


def binned(values: Floats) -> NDArray[np.int64]:
    """Count (samples, steps) values into (steps, bins).

    Example:
        >>> binned(np.array([[1.0], [1.0], [0.0]])).nonzero()[1].tolist()
        [0, 2049]
    """
    steps = values.shape[1]
    with np.errstate(divide="ignore"):  # log10(0) = -inf goes to bin 0
        place = (np.log10(values) - _LOWEST) * _PER_DECADE
    bins = np.clip(np.floor(place), -1, BINS - 2).astype(np.int64) + 1
    flat = (bins + np.arange(steps) * BINS).ravel()
    return np.bincount(flat, minlength=steps * BINS).reshape(steps, BINS)


def ranks(count: int) -> list[int]:
    """Which of `count` sorted values each quantile is, from 1: the first that reaches its share.

    Example:
        >>> ranks(20), ranks(1)
        ([1, 5, 10, 15, 19], [1, 1, 1, 1, 1])
    """
    return [max(1, math.ceil(round(share * count, 9))) for share in QUANTILES]


def quantiles(histogram: NDArray[Any], low: Floats, high: Floats) -> Floats:
    """Read (quantiles, steps) order statistics off (steps, bins) counts of one sample or more.

    Each is the middle of its bin; the smallest and the largest value of a step stand for all in the
    first and in the last one.

    >>> counts = binned(np.array([[1.0], [1.0], [0.0]]))
    >>> quantiles(counts, np.array([0.0]), np.array([1.0]))[:, 0].tolist()
    [0.0, 0.0, 1.0, 1.0, 1.0]
    """
    middles = 10.0 ** (_LOWEST + (np.arange(BINS) - 0.5) / _PER_DECADE)
    middles[0], middles[-1] = 0.0, np.inf  # so that the extremes take over below
    reached = histogram.cumsum(axis=1)
    count = int(reached[0, -1])
    bins = np.stack([(reached < rank).sum(axis=1) for rank in ranks(count)])
    clipped: Floats = np.clip(middles[bins], low, high)
    return clipped
