"""Does stiffness go with mistakes? Correlations over samples, and over models."""

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats

from stiffnet.errors import NonFiniteError, StepError
from stiffnet.stiffness.given import Floats, as_numbers

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from torch import Tensor

_KINDS = ("pearson", "spearman", "kendall")
_FEWEST = 3  # with two points every correlation is 1 or -1
_EXACT = 8  # up to this many points, all 8! = 40,320 orders are tried
_POOLED = "all"


@dataclass(frozen=True)
class ModelRanking:
    """How the order of several models by stiffness goes with their order by accuracy."""

    names: tuple[str, ...]
    """The models, in the order given."""
    spearman: float | None
    """Rank correlation; None if either column is constant."""
    spearman_p: float | None
    """Its two-sided p-value, exact up to eight models."""
    kendall: float | None
    """Kendall's tau-b; None likewise."""
    kendall_p: float | None
    note: str
    """Why there is no number, or empty."""


def relate(
    values: Mapping[str, "Tensor | ArrayLike"], targets: Mapping[str, "Tensor | ArrayLike"]
) -> pd.DataFrame:
    r"""Correlate per-sample stiffness with per-sample outcomes, step by step and pooled.

    $$r = \frac{\sum_n (v_n - \bar v)(y_n - \bar y)}
      {\sqrt{\sum_n (v_n - \bar v)^2 \sum_n (y_n - \bar y)^2}}$$

    is Pearson's; Spearman's is the same of the ranks, Kendall's (tau-b) compares all pairs. The
    row ``all`` pools the steps: their values end to end against the targets as often. Its points
    are not independent (each sample comes once per step), so its p-value is too small.

    Among many steps some p-value is small by chance. The columns ``pearson_holm, ...`` are p-values
    after Holm's correction for the number of steps: where there is no relation at all, one of
    them is at or below 0.05 in at most one of twenty data sets, whatever the steps have to do
    with each other. That is as right as the p-values are: Kendall's is exact for up to 33 samples
    without ties, Spearman's for up to eight and too small in the far tail of a few more, and
    Pearson's is one for normal values.

    Args:
        values: Name of a step (or other quantity) and its value for each sample.
        targets: Name of an outcome and its value for each sample, e.g. ``loss``, or ``accuracy``
            as 0 or 1.

    Returns:
        One row per step and target, then one ``all`` row per target if there is more than one
        step, with columns ``step, target, samples``, each coefficient followed by its two-sided
        p-value (``pearson, pearson_p, ...``), ``note``, and the corrected p-values, which the
        ``all`` rows lack. Where a column is constant or there are fewer than three samples the
        coefficients are None, and the note says why.

    Raises:
        StepError: If there is nothing to relate, the lengths differ, or a name is taken.
        NonFiniteError: If a value is NaN or infinite.

    Example:
        >>> frame = relate({"layer1.0": [1.0, 2.0, 3.0, 4.0]}, {"loss": [1.0, 3.0, 2.0, 4.0]})
        >>> frame.loc[0, "step"], round(frame.loc[0, "pearson"], 9)
        ('layer1.0', 0.8)
    """
    columns = {name: _column(name, value) for name, value in values.items()}
    outcomes = {name: _column(name, value) for name, value in targets.items()}
    lengths = [(name, len(column)) for name, column in (*columns.items(), *outcomes.items())]
    if not columns or not outcomes or len({length for _, length in lengths}) != 1:
        found = ", ".join(f"{name!r}: {length}" for name, length in lengths) or "none"
        raise StepError(
            f"Values and targets must be there and be of one length, but there are {found}; "
            "give each column one entry per sample."
        )
    if _POOLED in columns:
        raise StepError(f"A step may not be called {_POOLED!r}, the pooled row's name; rename it.")
    rows = [
        {"step": step, "target": target} | _correlations(column, outcome)
        for step, column in columns.items()
        for target, outcome in outcomes.items()
    ]
    for kind in _KINDS:
        for target in outcomes:
            own = [row for row in rows if row["target"] == target]
            for row, p in zip(own, holm([row[f"{kind}_p"] for row in own]), strict=True):
                row[f"{kind}_holm"] = p
    if len(columns) > 1:
        pooled = np.concatenate(list(columns.values()))
        for target, outcome in outcomes.items():
            row = _correlations(pooled, np.tile(outcome, len(columns)))
            notes = [row["note"], f"{len(columns)} values a sample, so p is too small"]
            row["note"] = "; ".join(note for note in notes if note)
            rows.append({"step": _POOLED, "target": target} | row)
    frame = pd.DataFrame(rows)
    # Object columns, because a float column would turn None into NaN.
    for name in (f"{kind}{end}" for kind in _KINDS for end in ("", "_p", "_holm")):
        frame[name] = pd.Series([row.get(name) for row in rows], dtype=object)
    return frame


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    r"""Correct p-values for their number, by Holm's step-down method.

    The k-th smallest of m is multiplied by m - k + 1, and none may come out below a smaller one's
    or above one. Rejecting at :math:`\alpha` then makes one false finding or more with probability
    :math:`\alpha` at most, under any dependence. None, where there is no test, does not count.

    >>> holm([0.01, 0.5, None, 0.02])
    [0.03, 0.5, None, 0.04]
    """
    known = [(p, position) for position, p in enumerate(p_values) if p is not None]
    corrected: list[float | None] = [None] * len(p_values)
    least = 0.0
    for order, (p, position) in enumerate(sorted(known)):
        least = max(least, min(1.0, p * (len(known) - order)))
        corrected[position] = least
    return corrected


def rank_models(
    tns: "Tensor | ArrayLike", accuracy: "Tensor | ArrayLike", names: Sequence[str] | None = None
) -> ModelRanking:
    """Rank correlation of total stiffness with accuracy, over several models.

    Args:
        tns: One total stiffness per model.
        accuracy: One accuracy per model, in any unit.
        names: The models' names.

    Returns:
        Spearman's and Kendall's coefficients with two-sided p-values. Up to eight models
        Spearman's p-value counts all orders: three models in perfect order have 1/3, not 0.

    Raises:
        StepError: If there are fewer than three models, or the lengths differ.
        NonFiniteError: If a value is NaN or infinite.

    Example:
        >>> ranking = rank_models([1.0, 2.0, 3.0], [0.9, 0.8, 0.7])
        >>> round(ranking.spearman, 9), round(ranking.spearman_p, 9)
        (-1.0, 0.333333333)
    """
    x, y = _column("tns", tns), _column("accuracy", accuracy)
    labels = tuple(str(number) for number in range(len(x))) if names is None else tuple(names)
    if len(x) < _FEWEST or not len(x) == len(y) == len(labels):
        raise StepError(
            f"There are {len(x)} stiffness values, {len(y)} accuracies and {len(labels)} names; "
            f"give one of each for at least {_FEWEST} models."
        )
    row = _correlations(x, y)
    found = ("spearman", "spearman_p", "kendall", "kendall_p", "note")
    return ModelRanking(labels, **{key: row[key] for key in found})


def _column(name: str, values: "Tensor | ArrayLike") -> Floats:
    column = as_numbers(values, what=name)
    if column.ndim != 1:
        raise StepError(f"{name!r} has shape {column.shape}; give one number per sample.")
    bad = np.flatnonzero(~np.isfinite(column))
    if bad.size:
        raise NonFiniteError(
            f"{name!r} is NaN or infinite for sample {bad[0]} ({bad.size} in all); "
            "leave these samples out of every column."
        )
    return column


def _correlations(x: Floats, y: Floats) -> dict[str, Any]:
    """Every coefficient and p-value of one pair, or None and the reason."""
    row: dict[str, Any] = {"samples": len(x)}
    row |= {name: None for kind in _KINDS for name in (kind, f"{kind}_p")}
    row["note"] = ""
    if len(x) < _FEWEST:
        return row | {"note": f"fewer than {_FEWEST} samples"}
    constant = [word for word, c in (("value", x), ("target", y)) if c.min() == c.max()]
    if constant:
        return row | {"note": f"constant {' and '.join(constant)}"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", stats.NearConstantInputWarning)
        pearson = stats.pearsonr(_scaled(x), _scaled(y))
    if caught:
        row["note"] = "nearly constant: rounding decides pearson"
    kendall = stats.kendalltau(x, y)
    spearman, spearman_p = _spearman(x, y)
    return row | {
        "pearson": float(pearson.statistic),
        "pearson_p": float(pearson.pvalue),
        "spearman": spearman,
        "spearman_p": spearman_p,
        "kendall": float(kendall.statistic),
        "kendall_p": float(kendall.pvalue),
    }


def _scaled(x: Floats) -> Floats:
    """Return a column times a power of two, which is exact: sums of any finite values exist."""
    scaled: Floats = np.ldexp(x, -np.frexp(np.abs(x).max())[1])
    return scaled


def _spearman(x: Floats, y: Floats) -> tuple[float, float]:
    """Spearman's coefficient; its p-value from all orders of a short column, else asymptotic."""
    result = stats.spearmanr(x, y)
    if len(x) > _EXACT:
        return float(result.statistic), float(result.pvalue)
    first, second = (2 * stats.rankdata(c) - (len(c) + 1) for c in (x, y))  # centred whole numbers
    orders = second[list(itertools.permutations(range(len(y))))] @ first
    extreme = np.abs(orders) >= abs(float(second @ first))
    return float(result.statistic), int(extreme.sum()) / math.factorial(len(y))
