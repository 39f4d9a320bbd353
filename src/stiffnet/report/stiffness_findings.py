"""What a measurement says, in sentences: computed from a view, for the page and the terminal."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from stiffnet.report.text import (
    a,
    clean,
    count,
    finite,
    fixed,
    images,
    known,
    largest,
    number,
    percent,
    rows,
    strong,
    with_error,
)
from stiffnet.results.ranking import stiffest
from stiffnet.results.view import StiffnessView
from stiffnet.words import listed

BARELY = 0.1  # a step whose increment is below a tenth of its state barely moves it
RELATED = 0.3  # a weaker rank correlation than this is not put into words
ALPHA = 0.05  # nor is one that chance alone would give more often than this, over all steps
APART = 1.96  # standard errors of a difference from which two totals are called different
SEVERAL = 3  # networks that are compared in sentences; the totals of more are in a table
_NAMED = 3  # steps named in a sentence


def stiffest_steps(view: StiffnessView, most: int = _NAMED) -> list[dict[str, Any]]:
    """Return the counted steps of the largest mean NSI (all steps where none is counted)."""
    nsi, counted = list(view.steps["nsi_mean"]), list(view.steps["counted"])
    order = stiffest(nsi, counted) or stiffest(nsi, [True] * len(nsi))
    return rows(view.steps.iloc[order[:most]])


def at_thresholds(view: StiffnessView, surface: np.ndarray, m1: float, m2: float) -> float | None:
    """Return a surface's value at two thresholds, or None where they are not on the grid."""
    across = np.flatnonzero(np.isclose(view.m1, m1, rtol=0, atol=1e-9))
    down = np.flatnonzero(np.isclose(view.m2, m2, rtol=0, atol=1e-9))
    return finite(surface[across[0], down[0]]) if across.size and down.size else None


def increment_differs(view: StiffnessView) -> bool:
    """Say whether the increment differs from NSI, as it does with attention and not without."""
    nsi = view.steps["nsi_mean"].to_numpy(dtype=float)
    increment = view.steps["increment_mean"].to_numpy(dtype=float)
    return not np.allclose(nsi, increment, rtol=1e-6, atol=1e-12, equal_nan=True) and bool(
        np.isfinite(increment).any()
    )


def all_counted(views: Sequence[StiffnessView]) -> bool:
    """Say whether every step of every view enters TNS."""
    return all(bool(view.steps["counted"].all()) for view in views)


def _counted_by_stage(view: StiffnessView) -> Any:
    """Return how many counted steps each stage has that has any."""
    return view.steps.loc[view.steps["counted"].astype(bool), "stage"].value_counts()


def _all_zero(view: StiffnessView) -> bool:
    return bool((view.steps["nsi_mean"].to_numpy(dtype=float) == 0).all())


def headline(view: StiffnessView) -> str:
    """Return TNS with its standard error, in plain words."""
    if finite(view.tns) is None:
        return (
            "No step of this network is counted, so it has no total neural stiffness (TNS). "
            "The indices of its steps are below."
        )
    if _all_zero(view):
        return (
            f"Every branch is {strong('zero')}, so no step moves the state: many networks start "
            "like this, with a last norm of weight zero. Give trained weights to see something."
        )
    if not view.tns_steps:
        return (
            f"The total neural stiffness (TNS) rests on no step and is {strong('0')} whatever the "
            "network does: no stage has more than one step that counts, and so none can stand "
            "out. The indices of the steps are below."
        )
    error = ", with its standard error over" if finite(view.tns_se) is not None else ", over"
    total = strong(with_error(view.tns, view.tns_se))
    return (
        f"On an average {view.noun[:-1]} the total neural stiffness (TNS) is {total}{error} "
        f"{images(view.samples, view.noun)}. It rests on {strong(basis(view))}, and would be 0 if "
        "each of these had the mean NSI of its stage."
    )


def basis(view: StiffnessView) -> str:
    """Say on how many steps and stages TNS rests: those of stages with two counted ones or more."""
    stages, every = int((_counted_by_stage(view) > 1).sum()), len(view.stages)
    of = "stage" if every == 1 else "stages"
    return f"{count(view.tns_steps)} of {count(len(view.steps))} steps, in {stages} of {every} {of}"


def findings(view: StiffnessView) -> list[str]:
    """Return a few sentences on where the stiffness sits, and what it goes with."""
    if _all_zero(view):
        return []
    say = (_stiffest, _barely, _peaks, _gated, _related)
    return [sentence for each in say if (sentence := each(view))]


def comparison(views: Sequence[StiffnessView]) -> list[str]:
    """Return sentences on how totals differ: from the first view, or of many, how far they go."""
    first = views[0]
    if len(views) > SEVERAL:
        return _range(views)
    return [
        f"Total neural stiffness (TNS) is {_total(other)}, against {_total(first)}"
        f"{_change(first, other)}.{_increments(first, other)}"
        for other in views[1:]
        if None not in (finite(first.tns), finite(other.tns))
        and first.tns_steps and other.tns_steps
    ]  # fmt: skip


def _range(views: Sequence[StiffnessView]) -> list[str]:
    """Say where the total is smallest and largest; a table has the others."""
    rested = [view for view in views if finite(view.tns) is not None and view.tns_steps]
    if len(rested) < 2:
        return []
    least, *_, most = sorted(rested, key=lambda view: finite(view.tns) or 0.0)
    return [
        f"Total neural stiffness (TNS) of {count(len(rested))} networks goes from {_total(least)} "
        f"to {_total(most)}{_change(least, most)}."
    ]


def _total(view: StiffnessView) -> str:
    total = strong(with_error(view.tns, view.tns_se))
    return f"{total} in “{clean(view.title, longest=80)}”"


def _change(first: StiffnessView, other: StiffnessView) -> str:
    """Say how many times as large a total is, where it differs by more than its error."""
    before, after = finite(first.tns), finite(other.tns)
    if not before or after is None or None in map(finite, (first.tns_se, other.tns_se)):
        return ""
    if alike(first, other):
        return f": they differ by less than {APART} standard errors"
    return f": {number(after / before)} times as much"


def alike(first: StiffnessView, other: StiffnessView) -> bool:
    """Say whether two totals differ by no more than their standard errors allow."""
    before, after, *errors = map(finite, (first.tns, other.tns, first.tns_se, other.tns_se))
    if before is None or after is None or None in errors:
        return False
    return abs(after - before) <= APART * math.hypot(*filter(None, errors))


def _increments(first: StiffnessView, other: StiffnessView) -> str:
    """Give the increments' totals too where there are gates, which TNS does not see."""
    known = None not in (finite(first.increment_total), finite(other.increment_total))
    if not known or not (first.steps["gated"].any() or other.steps["gated"].any()):
        return ""
    now, then = (with_error(v.increment_total, v.increment_total_se) for v in (other, first))
    return f" Of increments, with the gates in, the total is {now} against {then}."


def _name(row: dict[str, Any]) -> str:
    return clean(row["step"], longest=60)


def _at(row: dict[str, Any], more: str = "") -> str:
    return f"at {strong(_name(row))} ({number(row['nsi_mean'])}{more})"


def _stiffest(view: StiffnessView) -> str:
    top = stiffest_steps(view)
    if not top:
        return ""
    counted = [row for row in rows(view.steps) if row["counted"]]
    own = [row["nsi_mean"] for row in counted if row["stage"] == top[0]["stage"]]
    relative = ""
    if top[0]["counted"] and len(own) > 1 and finite(np.mean(own)):
        times = number(top[0]["nsi_mean"] / np.mean(own), 2)
        relative = f", {times} times the mean of its stage"
    said = f"Of the {count(len(counted))} counted steps, NSI" if counted else "NSI"
    said += f" is largest {_at(top[0], relative)}"
    for row, joined in zip(top[1:], (", then ", " and "), strict=False):
        said += joined + _at(row)
    first = largest(rows(view.steps), "nsi_mean")
    if first is not None and first["nsi_mean"] > top[0]["nsi_mean"]:
        said += f"; of all steps it is {_at(first)}, which does not count"
    return f"{said}."


def _barely(view: StiffnessView) -> str:
    """What moves the state is the increment; without a gate that is NSI."""
    gated = increment_differs(view)
    key, name = ("increment_mean", "increment") if gated else ("nsi_mean", "NSI")
    steps = sorted(known(rows(view.steps), key), key=lambda row: float(row[key]))
    if len(steps) < 2:
        return ""
    calm = [_name(row) for row in steps if row[key] < BARELY]
    if not calm:
        return (
            f"On average every step moves the state by {percent(BARELY)} or more; the calmest, "
            f"{strong(_name(steps[0]))}, has a mean {name} of {number(steps[0][key])}."
        )
    said = strong(f"{len(calm)} of {len(view.steps)} steps barely move the state")
    names = listed(calm, most=_NAMED)
    return f"{said} (mean {name} below {number(BARELY, 1)}): {names}."


def _peaks(view: StiffnessView) -> str:
    share = at_thresholds(view, view.delta, 1.0, 0.0)
    part = at_thresholds(view, view.proportion, 1.0, 0.0)
    if share is None or part is None or not (_counted_by_stage(view) > 2).any():
        return ""  # of two steps none can be above twice their mean
    kept = view.noun if view.kept == view.samples else f"{count(view.kept)} kept {view.noun}"
    said = f"{strong(percent(share))} of the {kept} have a counted step of at least twice the mean "
    said += "NSI of its stage"
    if share:
        counted = int(view.steps["counted"].sum())
        said += f"; such steps are {strong(percent(part))} of all counted ones, about "
        said += f"{number(part * counted, 2)} of {counted} on {a(view.noun[:-1])}"
    return f"{said}."


def _gated(view: StiffnessView) -> str:
    """Say what folding would do to TNS, where there is something to fold."""
    gated = int(view.steps["gated"].sum())
    if not gated or not view.tns_steps:
        return ""
    said = strong(f"{count(gated)} of {count(len(view.steps))} steps have a gate") + (
        ", such as attention or a layer scale. NSI and TNS are taken before it, so TNS changes "
        "when a constant gate is folded into the weights, though the outputs stay."
    )
    if finite(view.increment_total) is not None:
        total = with_error(view.increment_total, view.increment_total_se)
        said += f" Folding keeps the total of increments, {strong(total)}."
    return said


def _related(view: StiffnessView) -> str:
    """The step whose index goes most closely with the loss, if that is more than chance.

    Both rank correlations must pass after Holm's correction for the number of steps: Spearman's is
    shown, and Kendall's has the p-value that is exact for few images.
    """
    names = set(view.steps["step"])
    tried = [
        row
        for row in known(rows(view.relations), "spearman_holm", "kendall_holm")
        if row["target"] == "loss" and row["step"] in names
    ]
    sure = [
        row
        for row in tried
        if max(row["spearman_holm"], row["kendall_holm"]) <= ALPHA
        and abs(row["spearman"]) >= RELATED
    ]
    if not sure:
        return ""
    closest = max(sure, key=lambda row: abs(row["spearman"]))
    p = max(closest["spearman_holm"], closest["kendall_holm"])
    size = "smaller" if closest["spearman"] < 0 else "larger"
    rank = fixed(closest["spearman"], 2)
    chance = "< 0.001" if p < 0.001 else f"= {number(p, 2)}"
    return (
        f"A larger NSI at {strong(_name(closest))} goes with a {size} loss: their rank correlation "
        f"over {images(closest['samples'], view.noun)} is {strong(rank)} (p {chance}, Holm's "
        f"correction for {count(len(tried))} step{'' if len(tried) == 1 else 's'})."
    )
