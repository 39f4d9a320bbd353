"""Two values of each sample: how far their means differ, and whether chance explains it."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.special import stdtr, stdtrit

from stiffnet.stiffness.given import Floats

CONFIDENCE = 0.95
SAME = 1e-9  # of the largest difference: a spread below it is rounding


class Paired(NamedTuple):
    """Means over the same samples, and what is known of their difference, second minus first.

    Attributes:
        first: Mean of the first values.
        second: Mean of the second values.
        low: Lower end of the 95 % confidence interval of the difference; None where there is none.
        high: Its upper end.
        p: Two-sided p-value of no difference; None below two samples.
    """

    first: float
    second: float
    low: float | None
    high: float | None
    p: float | None


def paired(first: Floats, second: Floats) -> Paired:
    """Compare two values of every sample by the paired t-test.

    The interval and the test are of the mean difference. They are exact for normal differences,
    and good for others from a few dozen samples on. Where all samples differ by the same amount,
    there is no t: p is that of the sign test, and the interval is this amount, from six samples on.

    Example:
        >>> found = paired(np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.0, 6.0]))
        >>> round(found.second - found.first, 9), round(found.p, 4)
        (1.666666667, 0.1296)
    """
    apart = second - first
    means = float(first.mean()), float(second.mean())
    if len(apart) < 2:
        return Paired(*means, None, None, None)
    if is_flat(apart):
        centre, chance = float(apart.mean()), equal_signs(len(apart))
        end = centre if chance <= 1 - CONFIDENCE else None
        return Paired(*means, end, end, 1.0 if centre == 0 else chance)
    return Paired(*means, *t_interval(apart)[1:])


def is_flat(values: Floats) -> bool:
    """Whether values vary by no more than rounding, so that they have no t."""
    return bool(np.ptp(values) <= SAME * np.abs(values).max())


def equal_signs(count: int) -> float:
    """Probability that chance gives so many values one sign: the two-sided sign test."""
    return 2.0 ** (1 - count)


def t_interval(values: Floats) -> tuple[float, float, float, float]:
    """Mean, both ends of its 95 % interval, and p of a mean of zero, by Student's t."""
    mean, error, freedom = float(values.mean()), standard_error(values), len(values) - 1
    reach = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    return mean, mean - reach, mean + reach, 2 * float(stdtr(freedom, -abs(mean) / error))


def standard_error(values: Floats) -> float:
    """Return the standard error of a mean, of two values or more."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def mcnemar(first: npt.NDArray[np.bool_], second: npt.NDArray[np.bool_]) -> Paired:
    """Compare two yes-or-no answers to every sample by McNemar's exact test.

    Only samples on which the two disagree count for the test: without a difference, either is as
    likely to be the one that says yes. The interval is Agresti and Min's.

    Example:
        >>> yes, no = np.array([True] * 6 + [False] * 2), np.array([False] * 8)
        >>> mcnemar(yes, no).p
        0.03125
    """
    lost, won = int((first & ~second).sum()), int((~first & second).sum())
    count = len(first)
    means = float(first.mean()), float(second.mean())
    p = float(stats.binomtest(won, won + lost).pvalue) if won + lost else 1.0
    b, c, n = won + 0.5, lost + 0.5, count + 2
    centre, error = (b - c) / n, np.sqrt((b + c) - (b - c) ** 2 / n) / n
    reach = float(stats.norm.ppf((1 + CONFIDENCE) / 2) * error)
    return Paired(*means, max(centre - reach, -1.0), min(centre + reach, 1.0), p)
