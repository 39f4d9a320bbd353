"""What attention values say, in sentences: computed from a report, for page and terminal."""

from typing import Any

import numpy as np

from stiffnet.report.text import clean, count, finite, number, percent, rows, strong
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


def headline(report: StripeReport) -> str:
    """Say how constant attention is, in one sentence."""
    known = known_rows(report)
    if not known:
        return f"No module let anything through, so {strong('there are no values')} to look at."
    striped = strong(f"{sum(row['score'] >= STRIPED for row in known)} of {len(known)}")
    return (
        f"{striped} modules give stripes: at least {percent(STRIPED)} of the variance of their "
        f"values lies between channels, and not between {report.noun}. Constant values would "
        "change what a "
        f"module lets through by {strong(percent(mean_cost(report)))} (root mean square over "
        f"modules, {count(report.samples)} {report.noun})."
    )


def findings(report: StripeReport) -> list[str]:
    """Say what stands out."""
    found, one = [], report.noun[:-1]
    worst = dearest(report)
    if worst is not None:
        found.append(
            f"Constant attention would cost most at {strong(clean(worst['step'], longest=60))}: "
            f"what it lets through would change by {percent(worst['cost'])}, and its score is "
            f"{number(worst['score'])}."
        )
    calmer = [
        row["value_std_mean"] / row["input_std_mean"]
        for row in known_rows(report)
        if finite(row["input_std_mean"]) and finite(row["value_std_mean"]) is not None
    ]
    if calmer:
        times = strong(f"{number(np.median(calmer), 2)} times")
        found.append(
            f"Over {report.noun} the values of a channel spread {times} as far as the inputs of "
            "the module do (median over modules)."
        )
    if silent := sum(module.silent for module in report.modules):
        found.append(
            f"In {count(silent)} pairs of {one} and channel the rate is zero, so that there is no "
            "value; they are left out."
        )
    if spatial := sum(module.spatial for module in report.modules):
        found.append(
            f"{count(spatial)} modules weigh positions too: their values are the nearest single "
            "number, and what that misses is part of the cost."
        )
    if report.drift is not None:
        means = report.drift.means()[:, -1]
        settled = strong(f"{count((means < SETTLED).sum())} of {count(len(means))}")
        first, last = report.drift.epochs[-1]
        found.append(
            f"Between epochs {count(first)} and {count(last)} the values of {settled} modules "
            f"moved by less than {SETTLED:g}."
        )
    if report.growth is not None:
        end = rows(report.growth.to_frame())[-1]
        broken = bool((report.growth.nearest > 1).any())
        verdict = "the bound was broken" if broken else f"the bound held for every {one}"
        times = strong(f"{number(end['growth'])} times")
        found.append(
            f"A small perturbation of the first state is {times} as large after the last step; "
            f"Theorem 6.1 allows {number(end['bound'])} times, and {verdict}."
        )
    return found
