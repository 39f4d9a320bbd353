"""The record of what a data set's samples did, and the arithmetic from sums to its numbers.

Quantiles come from counts in bins, so that a data set of any size needs the same memory. Bins are
equal in the logarithm. The middle of a bin is within 10**(1/512) - 1 = 0.45 % of every value in
it; indices below 1e-8 or above 1e8 share one bin at either end.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stiffnet.stiffness.given import Floats

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

_PER_DECADE = 256
_LOWEST, _HIGHEST = -8, 8  # powers of ten
BINS = _PER_DECADE * (_HIGHEST - _LOWEST) + 2


class StiffnessSummary(NamedTuple):
    """What a data set's samples did, step by step. Arrays have one entry per step or per stage.

    Standard deviations over samples (divisor N - 1) and standard errors are None for one sample.
    """

    samples: int
    nsi_mean: Floats
    nsi_std: Floats | None
    nsi_min: Floats
    nsi_max: Floats
    increment_mean: Floats
    increment_std: Floats | None
    nsi_quantiles: Floats
    """(5, steps): the 5, 25, 50, 75 and 95 % order statistics (the smallest value with at least
    that share of samples at or below it), each good to 0.5 %."""
    counted_steps: int
    tns_steps: int
    """Number of counted steps whose stage has another one. Only they move the total: a stage with a
    single counted step has its maximum for its mean, and adds nothing."""
    stages: tuple[int, ...]
    """Ids of the stages that have a counted step, ascending."""
    tns: float | None
    """Mean total stiffness; None if no step is counted."""
    tns_se: float | None
    increment_tns: float | None
    """The same total with increments in the place of indices; None likewise."""
    increment_tns_se: float | None
    stage_tns: Floats
    """Mean of each such stage's own rectangle."""
    stage_tns_se: Floats | None


def moments(sums: Floats, squares: Floats, count: int) -> tuple[Floats, Floats | None]:
    """Mean and sample standard deviation (divisor N - 1) from a sum and a sum of squares.

    The relative error of the deviation is about 1e-16 (mean / deviation)²; a difference that
    rounding made negative is zero. One sample has no deviation: None. The arrays are new.

    Example:
        >>> moments(np.array([6.0]), np.array([20.0]), 2)
        (array([3.]), array([1.41421356]))
    """
    mean = sums / count
    if count == 1:
        return mean, None
    return mean, np.sqrt(np.maximum((squares - sums * mean) / (count - 1), 0.0))


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
