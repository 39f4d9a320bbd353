"""What a measurement says, in sentences: computed from a view, for the page and the terminal."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from stiffnet.report.text import (
    Sentence,
    Strong,
    clean,
    count,
    finite,
    images,
    listed,
    number,
    percent,
    rows,
    with_error,
)
from stiffnet.results.ranking import stiffest
from stiffnet.results.view import StiffnessView

BARELY = 0.1  # a step whose increment is below a tenth of its state barely moves it
RELATED = 0.3  # a weaker rank correlation than this is not put into words
ALPHA = 0.05  # nor is one that chance alone would give more often than this, over all steps
APART = 1.96  # standard errors of a difference from which two totals are called different
_NAMED = 3  # steps named in a sentence


def stiffest_steps(view: StiffnessView, most: int = _NAMED) -> list[dict[str, Any]]:
    """Return the counted steps of the largest mean NSI (all steps where none is counted)."""
    nsi, counted = list(view.steps["nsi_mean"]), list(view.steps["counted"])
    order = stiffest(nsi, counted) or stiffest(nsi, [True] * len(nsi))
    return rows(view.steps.iloc[order[:most]])


def stage_means(view: StiffnessView) -> dict[Any, float]:
    """Return the mean NSI of each stage's counted steps."""
    means = {}
    for stage in dict.fromkeys(view.steps["stage"]):
        own = [
            row["nsi_mean"] for row in rows(view.steps) if row["stage"] == stage and row["counted"]
        ]
        mean = finite(np.mean(own)) if own else None
        if mean:
            means[stage] = mean
    return means


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


def most_counted(view: StiffnessView) -> int:
    """Return how many counted steps the stage with the most of them has."""
    counted = view.steps.loc[view.steps["counted"].astype(bool), "stage"]
    return int(counted.value_counts().max()) if len(counted) else 0


def _all_zero(view: StiffnessView) -> bool:
    return bool((view.steps["nsi_mean"].to_numpy(dtype=float) == 0).all())


def headline(view: StiffnessView) -> Sentence:
    """Return TNS with its standard error, in plain words."""
    if finite(view.tns) is None:
        return (
            "No step of this network is counted, so it has no total neural stiffness (TNS). "
            "The indices of its steps are below.",
        )
    if _all_zero(view):
        return (
            "Every branch is ",
            Strong("zero"),
            ", so no step moves the state: many networks start like this, with a last norm of "
            "weight zero. Give trained weights to see something.",
        )
    if not view.tns_steps:
        return (
            "The total neural stiffness (TNS) rests on no step and is ",
            Strong("0"),
            " whatever the network does: no stage has more than one step that counts, and so none "
            "can stand out. The indices of the steps are below.",
        )
    error = ", with its standard error over " if finite(view.tns_se) is not None else ", over "
    return (
        "On an average image the total neural stiffness (TNS) is ",
        Strong(with_error(view.tns, view.tns_se)),
        f"{error}{images(view.samples)}. It rests on ",
        Strong(basis(view)),
        ", and would be 0 if each of these had the mean NSI of its stage.",
    )


def basis(view: StiffnessView) -> str:
    """Say on how many steps and stages TNS rests: those of stages with two counted ones or more."""
    counted = view.steps.loc[view.steps["counted"].astype(bool), "stage"].value_counts()
    stages, every = int((counted > 1).sum()), len(view.stages)
    of = "stage" if every == 1 else "stages"
    return f"{count(view.tns_steps)} of {count(len(view.steps))} steps, in {stages} of {every} {of}"


def findings(view: StiffnessView) -> list[Sentence]:
    """Return a few sentences on where the stiffness sits, and what it goes with."""
    if _all_zero(view):
        return []
    candidates = (
        _stiffest(view), _barely(view), _peaks(view), _gated(view), _related(view),
    )  # fmt: skip
    return [sentence for sentence in candidates if sentence]


def comparison(views: Sequence[StiffnessView]) -> list[Sentence]:
    """Return a sentence on how the total changes from the first view to each of the others."""
    sentences: list[Sentence] = []
    first = finite(views[0].tns) if views else None
    for other in views[1:]:
        now = finite(other.tns)
        if first is None or now is None or not (views[0].tns_steps and other.tns_steps):
            continue
        sentences.append(
            (
                "Total neural stiffness (TNS) is ",
                Strong(with_error(now, other.tns_se)),
                f" {_quoted(other)}, against ",
                Strong(with_error(first, views[0].tns_se)),
                f" {_quoted(views[0])}{_change(views[0], other)}.{_increments(views[0], other)}",
            )
        )
    return sentences


def _change(first: StiffnessView, other: StiffnessView) -> str:
    """Say how many times as large a total is, where it differs by more than its error."""
    before, after = finite(first.tns), finite(other.tns)
    errors = [error for error in map(finite, (first.tns_se, other.tns_se)) if error is not None]
    if not before or after is None or len(errors) < 2:
        return ""
    if abs(after - before) <= APART * math.hypot(*errors):
        return f": they differ by less than {APART} standard errors"
    return f": {number(after / before)} times as much"


def _increments(first: StiffnessView, other: StiffnessView) -> str:
    """Give the increments' totals too where there are gates, which TNS does not see."""
    known = None not in (finite(first.increment_total), finite(other.increment_total))
    if not known or not (first.steps["gated"].any() or other.steps["gated"].any()):
        return ""
    now, then = (with_error(v.increment_total, v.increment_total_se) for v in (other, first))
    return f" Of increments, with the gates in, the total is {now} against {then}."


def _quoted(view: StiffnessView) -> str:
    return f"in “{clean(view.title, longest=80)}”"


def _name(row: dict[str, Any]) -> str:
    return clean(row["step"], longest=60)


def _stiffest(view: StiffnessView) -> Sentence:
    top = stiffest_steps(view)
    if not top:
        return ()
    counted = [row for row in rows(view.steps) if row["counted"]]
    mean = stage_means(view).get(top[0]["stage"])
    relative = ""
    if mean and top[0]["counted"] and sum(r["stage"] == top[0]["stage"] for r in counted) > 1:
        relative = f", {number(top[0]['nsi_mean'] / mean, 2)} times the mean of its stage"
    sentence: list[str | Strong] = [
        f"Of the {count(len(counted))} counted steps, NSI is largest at " if counted
        else "NSI is largest at ",
        Strong(_name(top[0])),
        f" ({number(top[0]['nsi_mean'])}{relative})",
    ]  # fmt: skip
    for i, row in enumerate(top[1:]):
        sentence += [" and at " if i else ", then at ", Strong(_name(row))]
        sentence += [f" ({number(row['nsi_mean'])})"]
    first = max(_with_nsi(view), key=lambda row: row["nsi_mean"])
    if first["nsi_mean"] > top[0]["nsi_mean"]:
        sentence += ["; of all steps it is at ", Strong(_name(first))]
        sentence += [f" ({number(first['nsi_mean'])}), which does not count"]
    return (*sentence, ".")


def _with_nsi(view: StiffnessView) -> list[dict[str, Any]]:
    return [row for row in rows(view.steps) if finite(row["nsi_mean"]) is not None]


def _barely(view: StiffnessView) -> Sentence:
    """What moves the state is the increment; without a gate that is NSI."""
    gated = increment_differs(view)
    key, name = ("increment_mean", "increment") if gated else ("nsi_mean", "NSI")
    steps = [row for row in rows(view.steps) if finite(row[key]) is not None]
    if len(steps) < 2:
        return ()
    calm = sorted((row for row in steps if row[key] < BARELY), key=lambda row: row[key])
    if not calm:
        least = min(steps, key=lambda row: row[key])
        return (
            f"On average every step moves the state by {percent(BARELY)} or more; the calmest, ",
            Strong(_name(least)),
            f", has a mean {name} of {number(least[key])}.",
        )
    names = [_name(row) for row in calm[:_NAMED]]
    if len(calm) > _NAMED:
        names.append(f"{len(calm) - _NAMED} more")
    return (
        Strong(f"{len(calm)} of {len(view.steps)} steps barely move the state"),
        f" (mean {name} below {number(BARELY, 1)}): {listed(names)}.",
    )


def _peaks(view: StiffnessView) -> Sentence:
    share = at_thresholds(view, view.delta, 1.0, 0.0)
    part = at_thresholds(view, view.proportion, 1.0, 0.0)
    if share is None or part is None or most_counted(view) < 3:
        return ()  # of two steps none can be above twice their mean
    sentence: list[str | Strong] = [
        Strong(percent(share)),
        f" of {_kept(view)} have a counted step of at least twice the mean NSI of its stage",
    ]
    if share:
        counted = int(view.steps["counted"].sum())
        sentence += ["; such steps are ", Strong(percent(part)), " of all counted ones, about "]
        sentence += [f"{number(part * counted, 2)} of {counted} on an image"]
    return (*sentence, ".")


def _gated(view: StiffnessView) -> Sentence:
    """Say what folding would do to TNS, where there is something to fold."""
    gated = int(view.steps["gated"].sum())
    if not gated or not view.tns_steps:
        return ()
    sentence: list[str | Strong] = [
        Strong(f"{count(gated)} of {count(len(view.steps))} steps have a gate"),
        ", such as attention or a layer scale. NSI and TNS are taken before it, so TNS changes "
        "when a constant gate is folded into the weights, though the outputs stay.",
    ]
    if finite(view.increment_total) is not None:
        total = with_error(view.increment_total, view.increment_total_se)
        sentence += [" Folding keeps the total of increments, ", Strong(total), "."]
    return tuple(sentence)


def _related(view: StiffnessView) -> Sentence:
    """The step whose index goes most closely with the loss, if that is more than chance.

    Both rank correlations must pass after Holm's correction for the number of steps: Spearman's is
    shown, and Kendall's has the p-value that is exact for few images.
    """
    names = set(view.steps["step"])
    tried = [
        row
        for row in rows(view.relations)
        if row["target"] == "loss"
        and row["step"] in names
        and None not in (finite(row["spearman_holm"]), finite(row["kendall_holm"]))
    ]
    known = [
        row
        for row in tried
        if max(row["spearman_holm"], row["kendall_holm"]) <= ALPHA
        and abs(row["spearman"]) >= RELATED
    ]
    if not known:
        return ()
    closest = max(known, key=lambda row: abs(row["spearman"]))
    p = max(closest["spearman_holm"], closest["kendall_holm"])
    return (
        "A larger NSI at ",
        Strong(_name(closest)),
        f" goes with a {'smaller' if closest['spearman'] < 0 else 'larger'} loss: their rank "
        f"correlation over {images(closest['samples'])} is ",
        Strong(f"{closest['spearman']:.2f}".replace("-", "−")),
        f" (p {'< 0.001' if p < 0.001 else f'= {number(p, 2)}'}, Holm's correction for "
        f"{count(len(tried))} step{'' if len(tried) == 1 else 's'}).",
    )


def _kept(view: StiffnessView) -> str:
    return "the images" if view.kept == view.samples else f"the {count(view.kept)} kept images"
