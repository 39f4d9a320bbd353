"""The record of what a data set's samples did, and the arithmetic from sums to its numbers."""

from typing import NamedTuple

import numpy as np

from stiffnet.stiffness.given import Floats


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
