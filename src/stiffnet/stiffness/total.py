"""Total neural stiffness (TNS), and the counts it integrates, exactly and without a grid.

A step t of stage s is *stiff at (M₁, M₂)* when ζ_t ≥ max(μ_s(1 + M₁), M₂), with μ_s the mean of its
stage. In float64 we test ``ζ_t·n_s / Σζ >= 1 + M₁ and ζ_t >= M₂``. Dividing once, and never by
a rounded mean, makes a tie count as stiff whenever the sum and 1 + M₁ are exact; where they are
not, the last bit decides. The largest value of a stage is never taken to be below its mean, as
rounding alone could make it (0.1 is less than the float64 mean of three times 0.1).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stiffnet.errors import NonFiniteError, StepError
from stiffnet.stiffness.given import Floats, as_array, as_given, as_numbers, name_samples

if TYPE_CHECKING:
    from torch import Tensor

Stages: TypeAlias = "Sequence[int] | NDArray[Any] | Tensor"

_LARGEST = 1e140  # ratios, totals and the sums of their squares stay finite up to here
_CELLS = 1 << 21  # indicators per piece of the proportion: a few MB, so they stay in the cache


@dataclass(frozen=True)
class Estimate:
    """A mean over samples and its standard error, at each (M₁, M₂) of a grid."""

    value: Floats
    standard_error: Floats | None
    """Sample standard deviation (divisor N - 1) over √N; None for one sample."""


@overload
def tns(nsi: "Tensor", stages: Stages) -> "Tensor": ...
@overload
def tns(nsi: ArrayLike, stages: Stages) -> Floats: ...
def tns(nsi: Any, stages: Stages) -> Any:
    r"""Total neural stiffness of each sample, exactly.

    $$\mathrm{TNS} = \iint \delta(M_1, M_2) = \Bigl|\bigcup_s\, [0,\, m_s/\mu_s - 1] \times [0,\, m_s]\Bigr|$$

    with $m_s$ and $\mu_s$ the largest and the mean index of stage $s$: with one stage the area
    $m\,(m/\mu - 1)$ of a rectangle, with several the area of a union of them, by a sweep. A stage
    whose values are all equal, or all zero, adds nothing.

    Args:
        nsi: (samples, steps) indices of the steps that count (not the first of each stage).
        stages: The stage of each step; any integers, in any order.

    Returns:
        One float64 value per sample, as a tensor or an array like ``nsi``.

    Raises:
        StepError: If the shapes do not fit, there is no step, or an index is negative.
        NonFiniteError: If an index is NaN or infinite.

    Example:
        The first stage has maximum 4 and mean 2: 4 x 1. The second, 6 and 5, is 0.2 wide and
        stands out by 2 over that width.

        >>> tns(np.array([[1.0, 1.0, 4.0]]), [1, 1, 1])
        array([4.])
        >>> tns(np.array([[1.0, 1.0, 4.0, 4.0, 6.0]]), [1, 1, 1, 2, 2])
        array([4.4])
    """  # noqa: E501
    values, columns = _checked(nsi, stages)
    return as_given(_union_area(*_rectangles(values, columns)), nsi)


@overload
def stage_tns(nsi: "Tensor", stages: Stages) -> "Tensor": ...
@overload
def stage_tns(nsi: ArrayLike, stages: Stages) -> Floats: ...
def stage_tns(nsi: Any, stages: Stages) -> Any:
    r"""Each stage's own total stiffness $m_s\,(m_s/\mu_s - 1)$, before the union is taken.

    Takes and refuses what ``tns`` does, and gives (samples, distinct stages), in ascending order.

    Example:
        >>> stage_tns(np.array([[1.0, 1.0, 4.0, 5.0, 3.0]]), [1, 1, 1, 2, 2])
        array([[4.  , 1.25]])
    """
    values, columns = _checked(nsi, stages)
    widths, heights = _rectangles(values, columns)
    return as_given(widths * heights, nsi)


def delta(nsi: "Tensor | ArrayLike", stages: Stages, m1: ArrayLike, m2: ArrayLike) -> Estimate:
    r"""Share of samples with at least one stiff step.

    $$\delta(M_1, M_2) = \mathbb{E}\,\mathbf{1}\bigl[\exists t:
      \zeta_t \ge \max(\mu_{s(t)} (1 + M_1),\, M_2)\bigr]$$

    An exact count; ties are stiff (see the top of this module). A stage that is all zero is stiff
    at M₂ = 0, as the definition says. The work is (samples x stages) + grid, not their product.

    Args:
        nsi: (samples, steps) indices of the steps that count.
        stages: The stage of each step.
        m1: Excesses over the stage mean, a number or a list of them, none negative.
        m2: Absolute thresholds, likewise.

    Returns:
        The estimate on the grid: (len(m1), len(m2)), a plain number dropping its axis.

    Raises:
        StepError: If the shapes do not fit, or there is no step, no sample, or a bad threshold.
        NonFiniteError: If an index is NaN or infinite.

    Example:
        >>> nsi = np.array([[1.0, 1.0, 4.0], [1.0, 1.0, 1.0]])
        >>> delta(nsi, [1, 1, 1], [0.0, 1.0], [1.0, 5.0]).value
        array([[1. , 0. ],
               [0.5, 0. ]])
    """
    values, columns = _checked(nsi, stages)
    excess, level = _thresholds(m1, m2)
    samples = _some(values)
    ratios, peaks = _stage_peaks(values, columns)
    # How many (sorted) thresholds each rectangle covers: from here on corners are integers.
    rows, cols = _covered(ratios, excess), _covered(peaks, level)
    order = np.argsort(-rows, axis=1, kind="stable")
    rows = np.take_along_axis(rows, order, axis=1)
    cols = np.maximum.accumulate(np.take_along_axis(cols, order, axis=1), axis=1)
    # Neighbours on the staircase overlap in (next row, this column): count each corner once.
    corners = _counts(rows, cols, excess, level)
    share = (corners - _counts(rows[:, 1:], cols[:, :-1], excess, level)) / samples
    error = np.sqrt(share * (1 - share) / (samples - 1)) if samples > 1 else None
    return Estimate(share, error)


def proportion(
    nsi: "Tensor | ArrayLike",
    stages: Stages,
    m1: ArrayLike,
    m2: ArrayLike,
    *,
    errors: bool = True,
) -> Estimate:
    r"""Stiffness proportion: the share of steps that are stiff, averaged over samples.

    $$\hat p(M_1, M_2) = \frac{1}{L}\, \mathbb{E}\, \#\{t :
      \zeta_t \ge \max(\mu_{s(t)} (1 + M_1),\, M_2)\}$$

    Exact counts, with the conventions, arguments and errors of ``delta``. L is the number of
    columns given. Standard errors, which take most of the time on a fine grid, can be left out.

    Example:
        >>> proportion(np.array([[1.0, 1.0, 4.0, 2.0]]), [1, 1, 1, 1], 0.0, [0.0, 3.0]).value
        array([0.5 , 0.25])
    """
    values, columns = _checked(nsi, stages)
    excess, level = _thresholds(m1, m2)
    samples = _some(values)
    steps = values.shape[1]
    ratios = _ratios(values, columns)
    total = _counts(_covered(ratios, excess), _covered(values, level), excess, level)
    value = total / (samples * steps)
    if samples == 1 or not errors:
        return Estimate(value, None)
    squares = np.zeros((excess.size, level.size))
    piece = max(1, _CELLS // (steps * max(excess.size, level.size, 1)))
    for start in range(0, samples, piece):
        part = slice(start, start + piece)
        # Counting steps that pass both tests is a matrix product of indicators; a float32 holds
        # every count below 2**24, so it is exact.
        above = (ratios[part, None, :] >= excess.reshape(-1, 1)).astype(np.float32)
        high = (values[part, :, None] >= level.reshape(1, -1)).astype(np.float32)
        squares += np.square((above @ high).astype(np.float64)).sum(axis=0)
    # Whole numbers below 2**53, so the difference cannot come out as noise below zero by much.
    spread = squares.reshape(total.shape) - total.astype(np.float64) ** 2 / samples
    variance = np.clip(spread, 0, None) / (samples - 1)
    return Estimate(value, np.sqrt(variance / samples) / steps)


def check_indices(values: Floats, *, what: str = "nsi") -> None:
    """Refuse (samples, steps) indices that are no such ratios, naming the samples and the step.

    Raises:
        NonFiniteError: If a value is NaN or infinite.
        StepError: If a value is negative, or above 1e140, where totals would leave float64.
    """
    if values.size == 0 or (values.min() >= 0 and values.max() <= _LARGEST):  # they see NaN too
        return
    kinds: tuple[tuple[NDArray[np.bool_], type[StepError], str], ...] = (
        (~np.isfinite(values), NonFiniteError, "NaN or infinite"),
        (values < 0, StepError, "negative"),
        (values > _LARGEST, StepError, f"above {_LARGEST:g}"),
    )
    bad, error, word = next(kind for kind in kinds if kind[0].any())
    step = int(np.flatnonzero(bad.any(axis=0))[0])
    raise error(
        f"`{what}` is {word} for {name_samples(bad[:, step])} at step {step}, counted from 0; "
        "an index is a ratio of norms: check how these were computed, or leave these samples out."
    )


def stage_columns(stages: Stages, *, steps: int) -> dict[int, list[int]]:
    """Columns of each stage, by ascending stage id; a StepError unless each step has an integer.

    >>> stage_columns([7, 7, 2], steps=3)
    {2: [2], 7: [0, 1]}
    """
    ids = as_array(stages)
    if ids.shape != (steps,) or not (steps == 0 or np.issubdtype(ids.dtype, np.integer)):
        raise StepError(
            f"`stages` has shape {ids.shape} and type {ids.dtype} for {steps} steps; "
            "give one integer per step."
        )
    return {int(stage): np.flatnonzero(ids == stage).tolist() for stage in np.unique(ids)}


def _checked(nsi: Any, stages: Stages) -> tuple[Floats, dict[int, list[int]]]:
    values = as_numbers(nsi, what="nsi")
    if values.ndim != 2 or values.shape[1] == 0:
        raise StepError(
            f"`nsi` has shape {values.shape}; give (samples, steps) with at least one step."
        )
    check_indices(values)
    return values, stage_columns(stages, steps=values.shape[1])


def _some(values: Floats) -> int:
    if len(values) == 0:
        raise StepError("A share of no samples does not exist; give `nsi` at least one row.")
    return len(values)


def _ratios(values: Floats, columns: dict[int, list[int]]) -> Floats:
    """Each value over its stage's mean; infinite in a stage of zeros, where 0 ≥ 0·(1 + M₁)."""
    ratios = np.empty_like(values)
    for steps in columns.values():
        stage = values[:, steps]
        ratio = _over(stage * len(steps), stage.sum(axis=1, keepdims=True))
        largest = stage == stage.max(axis=1, keepdims=True)
        ratios[:, steps] = np.where(largest, np.maximum(ratio, 1.0), ratio)
    return ratios


def _stage_peaks(values: Floats, columns: dict[int, list[int]]) -> tuple[Floats, Floats]:
    """Largest ratio and largest value of each stage; one step has both, division being monotone."""
    peaks = np.stack([values[:, steps].max(axis=1) for steps in columns.values()], axis=1)
    totals = np.stack([values[:, steps].sum(axis=1) for steps in columns.values()], axis=1)
    counts = np.array([len(steps) for steps in columns.values()])
    return np.maximum(_over(peaks * counts, totals), 1.0), peaks


def _over(values: Floats, totals: Floats) -> Floats:
    """Quotients, infinite where a total is zero."""
    return np.divide(values, totals, out=np.full_like(values, np.inf), where=totals > 0)


def _rectangles(values: Floats, columns: dict[int, list[int]]) -> tuple[Floats, Floats]:
    ratios, peaks = _stage_peaks(values, columns)
    return np.where(peaks > 0, ratios - 1, 0.0), peaks


def _union_area(widths: Floats, heights: Floats) -> Floats:
    """Area of the union of rectangles that share a corner: from the widest, the skyline rises."""
    order = np.argsort(-widths, axis=1, kind="stable")
    widths = np.take_along_axis(widths, order, axis=1)
    skyline = np.maximum.accumulate(np.take_along_axis(heights, order, axis=1), axis=1)
    area: Floats = (-np.diff(widths, axis=1, append=0.0) * skyline).sum(axis=1)
    return area


def _thresholds(m1: ArrayLike, m2: ArrayLike) -> tuple[Floats, Floats]:
    grids = [np.asarray(m, dtype=np.float64) for m in (m1, m2)]
    for name, grid in zip(("m1", "m2"), grids, strict=True):
        if grid.ndim > 1 or not (np.isfinite(grid) & (grid >= 0)).all():
            raise StepError(
                f"`{name}` must be a number or a list of numbers, finite and not negative, "
                "since both thresholds start at 0; change the values that are not."
            )
    return 1.0 + grids[0], grids[1]


def _covered(values: Floats, grid: Floats) -> NDArray[np.intp]:
    """How many thresholds of a grid each value reaches."""
    return np.searchsorted(np.sort(grid.ravel()), values, side="right")


def _counts(
    rows: NDArray[np.intp], cols: NDArray[np.intp], excess: Floats, level: Floats
) -> NDArray[np.int64]:
    """Count, at each pair of thresholds, the points that reach both; each says how many of either.

    In the order of the given thresholds, a plain number dropping its axis.
    """
    shape = (excess.size + 1, level.size + 1)
    flat = np.bincount((rows * shape[1] + cols).ravel(), minlength=shape[0] * shape[1])
    reached = flat.reshape(shape)[::-1, ::-1].cumsum(axis=0).cumsum(axis=1)[::-1, ::-1][1:, 1:]
    # Where each threshold stands once they are sorted.
    places = (
        np.argsort(np.argsort(g.ravel(), kind="stable"), kind="stable") for g in (excess, level)
    )
    return reached[np.ix_(*places)].reshape(excess.shape + level.shape)
