"""Whether a claim held, was refuted or is undecided: computed from seeds by a stated test.

A comparison is judged by the two-sided 95 % interval of its mean over seeds, by Student's t
(paired: both sides were trained from the same seeds). It held if the whole interval lies on the
claim's side, it is refuted if the whole interval lies on the other side, and else it is undecided;
with fewer than three seeds it is always undecided. Three seeds show only what is large: the
interval reaches 2.5 standard deviations to both sides of the mean.

A study held if all of its comparisons held. It is refuted if one is refuted at 5 % divided by the
number of comparisons, so that at most one study in twenty is refuted by chance.

Counts that depend on no seed are equal to the published ones or not; one run of them decides.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr
from scipy.stats import rankdata

from stiffnet.stiffness.given import Floats
from stiffnet.stiffness.paired import SAME, equal_signs, is_flat, standard_error, t_interval

LEVEL = 0.05
LEAST_SEEDS = 3
LEAST_NETWORKS = 5  # of fewer, no order is so rare that chance does not give it in one of twenty
EXACT_UP_TO = 8  # networks whose orders are all tried; of more, so many are drawn:
DRAWS = 20_000


class Verdict(StrEnum):
    """What became of a claim."""

    HELD = "held"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Finding:
    """A verdict on one comparison, and the numbers that it rests on; None where there is none."""

    verdict: Verdict
    why: str
    seeds: int
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    remark: str = ""
    """The part of `why` that the numbers do not show; nothing where they show all."""

    def remarked(self, remark: str) -> "Finding":
        """Return it with something more to say."""
        return replace(self, why=f"{self.why} {remark}", remark=f"{self.remark} {remark}".strip())


def positive(differences: Sequence[float]) -> Finding:
    """Judge the claim that a quantity, one value a seed, is above zero.

    >>> found = positive([1.0, 2.0, 3.0, 2.0])
    >>> found.verdict.value, round(found.low, 3), round(found.high, 3), round(found.p, 4)
    ('held', 0.701, 3.299, 0.0163)
    """
    values, refusal = _checked(differences)
    if refusal is not None:
        return refusal
    if is_flat(values):
        return _flat(values)
    mean, low, high, p = t_interval(values)
    if low > 0:
        verdict, side = Verdict.HELD, "lies above zero"
    elif high < 0:
        verdict, side = Verdict.REFUTED, "lies below zero"
    else:
        verdict, side = Verdict.UNDECIDED, "contains zero"
    return Finding(verdict, _told(values, low, side), len(values), mean, low, high, p)


def within(differences: Sequence[float], margin: float) -> Finding:
    """Judge the claim that a quantity, one value a seed, lies within a margin around zero.

    It held if the whole interval lies within the margin, and is refuted if all of it lies outside.

    >>> [within(values, 2.0).verdict.value for values in ([0.1, 0.2, 0.0], [5.0, 5.1, 4.9])]
    ['held', 'refuted']
    """
    values, refusal = _checked(differences)
    if refusal is not None:
        return refusal
    if is_flat(values):
        return _flat_within(values, margin)
    mean, low, high, _ = t_interval(values)
    if -margin < low and high < margin:
        verdict, side = Verdict.HELD, f"lies within ±{margin:g}"
    elif low > margin or high < -margin:
        verdict, side = Verdict.REFUTED, f"lies outside ±{margin:g}"
    else:
        verdict, side = Verdict.UNDECIDED, f"reaches over ±{margin:g}"
    p = 2 * _beyond(values, margin) if verdict is Verdict.REFUTED else None
    return Finding(verdict, _told(values, low, side), len(values), mean, low, high, p)


def correlated(x: npt.ArrayLike, y: npt.ArrayLike, sign: int) -> Finding:
    """Judge the claim that two quantities of networks rise together (or, sign -1, against).

    The quantities are averaged over seeds, because networks and not seeds are what is ranked. The
    estimate is Spearman's ρ, p the share of all orders of the networks with one at least as far
    from zero.

    Args:
        x: (networks, seeds) values.
        y: The same of the other quantity.
        sign: 1 or -1.
    """
    xs, ys = (np.asarray(each, dtype=np.float64) for each in (x, y))
    networks, seeds = xs.shape
    if not (np.isfinite(xs).all() and np.isfinite(ys).all()):
        return Finding(Verdict.UNDECIDED, "A value is not a finite number.", seeds)
    if seeds < LEAST_SEEDS:
        return Finding(Verdict.UNDECIDED, _too_few(seeds), seeds)
    if networks < LEAST_NETWORKS:
        why = f"{networks} networks are too few to rank; {LEAST_NETWORKS} are needed."
        return Finding(Verdict.UNDECIDED, why, seeds)
    first, second = rankdata(xs.mean(axis=1)), rankdata(ys.mean(axis=1))
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return Finding(Verdict.UNDECIDED, "One of the two is the same for all networks.", seeds)
    rho = float(np.corrcoef(first, second)[0, 1])
    p = _permuted(first, second)
    known = p <= LEVEL
    verdict = Verdict.UNDECIDED
    if known:
        verdict = Verdict.HELD if rho * sign > 0 else Verdict.REFUTED
    said = "which chance does in" if not known else "which chance gives in only"
    why = (
        f"Spearman's ρ of {networks} networks, each a mean of {seeds} seeds, is {_signed(rho, 2)}, "
        f"{said} {100 * p:.2g} % of all orders."
    )
    return Finding(verdict, why, seeds, rho, p=p)


def as_printed(found: Mapping[str, int | None], printed: Mapping[str, float]) -> Finding:
    """Judge the claim that counts are those which were published.

    A count depends on no seed: it is equal or it is not, and no test is needed.

    >>> as_printed({"block 1": 4, "block 2": None}, {"block 1": 4.0, "block 2": 2.0}).why
    '1 of 2 counts equals what is printed. Of block 2 there are none, and 2 are printed.'
    """
    if not printed or any(row not in found for row in printed):
        return Finding(Verdict.UNDECIDED, "Not every row was counted.", 0)
    wrong = [row for row in printed if found[row] != printed[row]]
    if not wrong:
        return Finding(Verdict.HELD, f"All {len(printed)} counts equal what is printed.", 1)
    right = len(printed) - len(wrong)
    has = "none" if found[wrong[0]] is None else f"{found[wrong[0]]:,}"
    why = (
        f"{right} of {len(printed)} counts equal{'s' if right == 1 else ''} what is printed. Of "
        f"{wrong[0]} there are {has}, and {printed[wrong[0]]:,.0f} are printed."
    )
    return Finding(Verdict.REFUTED, why, 1)


def overall(findings: Sequence[Finding]) -> Finding:
    """Judge a study by its comparisons."""
    seeds = min((found.seeds for found in findings), default=0)
    if not findings:
        return Finding(Verdict.UNDECIDED, "Nothing was compared.", seeds)
    count = {v: sum(found.verdict is v for found in findings) for v in Verdict}
    sure = LEVEL / len(findings)
    refuted = [f for f in findings if f.verdict is Verdict.REFUTED and (f.p or 0.0) <= sure]
    if refuted:
        verdict = Verdict.REFUTED
    elif count[Verdict.HELD] == len(findings):
        verdict = Verdict.HELD
    else:
        verdict = Verdict.UNDECIDED
    if len(findings) == 1:
        return Finding(verdict, findings[0].why, seeds)
    parts = ", ".join(f"{count[v]} {v.value}" for v in Verdict if count[v])
    why = f"Of {len(findings)} comparisons: {parts}."
    if verdict is Verdict.UNDECIDED and count[Verdict.REFUTED]:
        why += f" With so many, only one whose p is at most {sure:.2g} refutes the study."
    return Finding(verdict, why, seeds)


def _checked(differences: Sequence[float]) -> tuple[Floats, Finding | None]:
    """Return the values, and a finding where there are too few or one is not a number."""
    values = np.asarray(list(differences), dtype=np.float64)
    if len(values) < LEAST_SEEDS:
        return values, Finding(Verdict.UNDECIDED, _too_few(len(values)), len(values))
    if not np.isfinite(values).all():
        return values, Finding(Verdict.UNDECIDED, "A value is not a finite number.", len(values))
    return values, None


def _flat(values: Floats) -> Finding:
    """Judge values that do not vary, for which there is no t: by the sign test."""
    mean, seeds = float(values.mean()), len(values)
    p = 1.0 if mean == 0 else equal_signs(seeds)
    verdict = Verdict.UNDECIDED
    if p <= LEVEL:
        verdict = Verdict.HELD if mean > 0 else Verdict.REFUTED
    why = (
        f"All {seeds} differences are {_plain(mean)}, so that only their sign can be tested: "
        f"chance gives {seeds} equal signs with probability {p:.2g}."
    )
    if mean == 0:
        why = f"All {seeds} differences are zero."
    return Finding(verdict, why, seeds, mean, p=p)


def _flat_within(values: Floats, margin: float) -> Finding:
    mean, seeds = float(values.mean()), len(values)
    if abs(mean) < margin:
        why = f"All {seeds} differences are {_plain(mean)}, which is within ±{margin:g}."
        return Finding(Verdict.HELD, why, seeds, mean, mean, mean)
    p = equal_signs(seeds)
    verdict = Verdict.REFUTED if p <= LEVEL else Verdict.UNDECIDED
    why = (
        f"All {seeds} differences are {_plain(mean)}, which is outside ±{margin:g}: chance puts "
        f"{seeds} on one side of an end with probability {p:.2g}."
    )
    return Finding(verdict, why, seeds, mean, p=p)


def _beyond(values: Floats, margin: float) -> float:
    distance = abs(float(values.mean())) - margin
    return float(stdtr(len(values) - 1, -distance / standard_error(values)))


def _permuted(x: Floats, y: Floats) -> float:
    """Share of the orders of y whose correlation with x is as far from zero as the given one."""
    centred = x - x.mean()
    reached = abs(float(centred @ y)) * (1 - SAME)
    if len(y) <= EXACT_UP_TO:
        orders = np.array(list(itertools.permutations(y)))
        return float((np.abs(orders @ centred) >= reached).mean())
    random = np.random.default_rng(0)
    drawn = random.permuted(np.tile(y, (DRAWS, 1)), axis=1)
    return float((1 + (np.abs(drawn @ centred) >= reached).sum()) / (1 + DRAWS))


def _too_few(seeds: int) -> str:
    return f"{seeds} seed{'' if seeds == 1 else 's'} cannot show it; {LEAST_SEEDS} are needed."


def _told(values: Floats, low: float, side: str) -> str:
    mean = float(values.mean())
    digits = max(0, 1 - math.floor(math.log10(mean - low)))
    centre, left, right = (_signed(each, digits) for each in (mean, low, 2 * mean - low))
    return (
        f"The mean difference over {len(values)} seeds is {centre}, and its 95 % interval, {left} "
        f"to {right}, {side}."
    )


def _plain(value: float) -> str:
    return f"{value:+.3g}".replace("-", "−")


def _signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")
