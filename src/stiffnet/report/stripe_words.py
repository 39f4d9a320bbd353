"""What attention values say, in sentences: computed from a view, for the page and the terminal."""

from typing import Any

import numpy as np

from stiffnet.report.findings import Sentence, Strong, rows
from stiffnet.report.stripe_view import StripeView
from stiffnet.report.text import clean, count, finite, number, percent

STRIPED = 0.9  # a score from which a picture looks striped to the eye
SETTLED = 0.01  # a mean difference between epochs below which values have settled


def known_rows(view: StripeView) -> list[dict[str, Any]]:
    """Return the rows of modules that have a score."""
    return [row for row in rows(view.rows) if finite(row["score"]) is not None]


def mean_cost(view: StripeView) -> float | None:
    """Return the cost of all modules together, as a root mean square."""
    costs = [row["cost"] for row in known_rows(view) if finite(row["cost"]) is not None]
    return float(np.sqrt(np.mean(np.square(costs)))) if costs else None


def dearest(view: StripeView) -> dict[str, Any] | None:
    """Return the row of the module whose constant form costs most."""
    known = [row for row in known_rows(view) if finite(row["cost"]) is not None]
    return max(known, key=lambda row: row["cost"], default=None)


def headline(view: StripeView) -> Sentence:
    """Say how constant attention is, in one sentence."""
    known = known_rows(view)
    if not known:
        return (
            "No module let anything through, so ",
            Strong("there are no values"),
            " to look at.",
        )
    striped = sum(row["score"] >= STRIPED for row in known)
    return (
        Strong(f"{count(striped)} of {count(len(known))}"),
        " modules give stripes: ",
        f"at least {percent(STRIPED)} of the variance of their values lies between channels, and "
        "not between images. Constant values would change what a module lets through by ",
        Strong(percent(mean_cost(view))),
        f" (root mean square over modules, {count(view.samples)} images).",
    )


def findings(view: StripeView) -> list[Sentence]:
    """Say what stands out."""
    found: list[Sentence] = []
    worst = dearest(view)
    if worst is not None:
        found.append(
            (
                "Constant attention would cost most at ",
                Strong(clean(worst["step"], longest=60)),
                f": what it lets through would change by {percent(worst['cost'])}, and its score "
                f"is {number(worst['score'])}.",
            )
        )
    known = known_rows(view)
    calmer = [
        row["value_std_mean"] / row["input_std_mean"]
        for row in known
        if finite(row["input_std_mean"]) and finite(row["value_std_mean"]) is not None
    ]
    if calmer:
        found.append(
            (
                "Over images the values of a channel spread ",
                Strong(f"{number(np.median(calmer), 2)} times"),
                " as far as the inputs of the module do (median over modules).",
            )
        )
    silent = sum(int(row["silent"]) for row in rows(view.rows))
    if silent:
        found.append(
            (
                f"In {count(silent)} pairs of image and channel the rate is zero, so that there is "
                "no value; they are left out.",
            )
        )
    spatial = sum(bool(row["spatial"]) for row in rows(view.rows))
    if spatial:
        found.append(
            (
                f"{count(spatial)} modules weigh positions too: their values are the nearest "
                "single number, and what that misses is part of the cost.",
            )
        )
    return [*found, *_drift(view), *_growth(view)]


def _drift(view: StripeView) -> list[Sentence]:
    if view.drift is None:
        return []
    means = view.drift.means()[:, -1]
    settled = int((means < SETTLED).sum())
    first, last = view.drift.epochs[-1]
    return [
        (
            f"Between epochs {count(first)} and {count(last)} the values of ",
            Strong(f"{count(settled)} of {count(len(means))}"),
            f" modules moved by less than {SETTLED:g}.",
        )
    ]


def _growth(view: StripeView) -> list[Sentence]:
    if view.growth is None:
        return []
    end = rows(view.growth.to_frame())[-1]
    broken = bool((view.growth.nearest > 1).any())
    verdict = "the bound was broken" if broken else "the bound held for every image"
    return [
        (
            "A small perturbation of the first state is ",
            Strong(f"{number(end['growth'])} times"),
            f" as large after the last step; Theorem 6.1 allows {number(end['bound'])} times, and "
            f"{verdict}.",
        )
    ]
