"""What attention values say, in sentences: computed from a report, for page and terminal."""

from typing import Any

import numpy as np

from stiffnet.report.text import Sentence, Strong, clean, count, finite, number, percent, rows
from stiffnet.results.stripes import StripeReport

STRIPED = 0.9  # a score from which a picture looks striped to the eye
SETTLED = 0.01  # a mean difference between epochs below which values have settled


def known_rows(report: StripeReport) -> list[dict[str, Any]]:
    """Return the rows of modules that have a score."""
    return [row for row in rows(report.to_frame()) if finite(row["score"]) is not None]


def mean_cost(report: StripeReport) -> float | None:
    """Return the cost of all modules together, as a root mean square."""
    costs = [row["cost"] for row in known_rows(report) if finite(row["cost"]) is not None]
    return float(np.sqrt(np.mean(np.square(costs)))) if costs else None


def dearest(report: StripeReport) -> dict[str, Any] | None:
    """Return the row of the module whose constant form costs most."""
    known = [row for row in known_rows(report) if finite(row["cost"]) is not None]
    return max(known, key=lambda row: row["cost"], default=None)


def headline(report: StripeReport) -> Sentence:
    """Say how constant attention is, in one sentence."""
    known = known_rows(report)
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
        Strong(percent(mean_cost(report))),
        f" (root mean square over modules, {count(report.samples)} images).",
    )


def findings(report: StripeReport) -> list[Sentence]:
    """Say what stands out."""
    found: list[Sentence] = []
    worst = dearest(report)
    if worst is not None:
        found.append(
            (
                "Constant attention would cost most at ",
                Strong(clean(worst["step"], longest=60)),
                f": what it lets through would change by {percent(worst['cost'])}, and its score "
                f"is {number(worst['score'])}.",
            )
        )
    known = known_rows(report)
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
    silent = sum(int(row["silent"]) for row in rows(report.to_frame()))
    if silent:
        found.append(
            (
                f"In {count(silent)} pairs of image and channel the rate is zero, so that there is "
                "no value; they are left out.",
            )
        )
    spatial = sum(bool(row["spatial"]) for row in rows(report.to_frame()))
    if spatial:
        found.append(
            (
                f"{count(spatial)} modules weigh positions too: their values are the nearest "
                "single number, and what that misses is part of the cost.",
            )
        )
    return [*found, *_drift(report), *_growth(report)]


def _drift(report: StripeReport) -> list[Sentence]:
    if report.drift is None:
        return []
    means = report.drift.means()[:, -1]
    settled = int((means < SETTLED).sum())
    first, last = report.drift.epochs[-1]
    return [
        (
            f"Between epochs {count(first)} and {count(last)} the values of ",
            Strong(f"{count(settled)} of {count(len(means))}"),
            f" modules moved by less than {SETTLED:g}.",
        )
    ]


def _growth(report: StripeReport) -> list[Sentence]:
    if report.growth is None:
        return []
    end = rows(report.growth.to_frame())[-1]
    broken = bool((report.growth.nearest > 1).any())
    verdict = "the bound was broken" if broken else "the bound held for every image"
    return [
        (
            "A small perturbation of the first state is ",
            Strong(f"{number(end['growth'])} times"),
            f" as large after the last step; Theorem 6.1 allows {number(end['bound'])} times, and "
            f"{verdict}.",
        )
    ]
