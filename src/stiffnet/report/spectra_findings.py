"""What spectra say, in sentences: computed from a report, for page and terminal."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stiffnet.errors import StepError
from stiffnet.report.text import clean, count, images, known, largest, number, percent, rows, strong
from stiffnet.results.spectra import SpectrumReport
from stiffnet.words import listed

Rowed = dict[str, Any]
SMALL = 0.05  # a corrected p-value up to which a relation is put into words
FEWEST = 10  # images; with fewer, chance is not told from anything
SYMBOLS = {
    "stiffness_index": "S",
    "absolute_index": "|S|",
    "negative_share": "P",
    "real_extent": "ζ_SI",
    "radius": "ρ",
}


@dataclass(frozen=True)
class Shown:
    """A report, and the rows of its tables, which are made once."""

    report: SpectrumReport
    steps: list[Rowed]
    """One row a step; see `_step_rows`."""
    labels: list[Rowed]
    """One row a label; none where there are no labels."""
    relations: list[Rowed]
    """Correlations with loss and correctness; none where there is no loss."""

    @property
    def stiffest(self) -> Rowed | None:
        """The row of the step whose real parts reach furthest."""
        return largest(self.steps, "real_extent_mean")

    @property
    def images(self) -> str:
        """How many images there were, in words."""
        return images(len(self.report.images), self.report.noun)

    def mean(self, key: str) -> float | None:
        """Return the mean of a column over the steps that have it."""
        values = [row[key] for row in known(self.steps, key)]
        return float(np.mean(values)) if values else None


def shown_of(report: SpectrumReport) -> Shown:
    """Make the rows of all tables."""
    return Shown(report, _step_rows(report), _if_any(report.by_label), _if_any(report.relate))


def _if_any(table: Callable[[], Any]) -> list[Rowed]:
    try:
        return rows(table())
    except StepError:
        return []


def _step_rows(report: SpectrumReport) -> list[Rowed]:
    """Return one row a step: means over images of all that is known of it, and how it was found."""
    frame = report.to_frame()
    more = ["outside_share", "max_real", "min_real", "condition", "non_normality", "norm", "inner"]
    for name in (*more, "peak_bytes"):
        frame[name] = frame[name].astype(float)
    groups = frame.groupby("step", sort=False)
    means, seconds, peak = groups[more].mean(), groups["seconds"].sum(), groups["peak_bytes"].max()
    found = []
    for row in rows(report.by_step()):
        step = row["step"]
        first = report.spectra[step][0]
        methods = dict.fromkeys(clean(each.method, longest=12) for each in report.spectra[step])
        own = {
            "method": listed(list(methods)), "count": first.count, "elements": first.elements,
            "cut": first.cut, "shape": first.shape, "shape_out": first.shape_out,
            "seconds": seconds[step], "peak": peak[step],
        }  # fmt: skip
        found.append(row | means.loc[step].to_dict() | own)
    return found


def headline(shown: Shown) -> str:
    """Say where the network is stiffest, in one sentence."""
    worst = shown.stiffest
    if worst is None:
        return (
            f"{strong('No step has eigenvalues')}, because each of them changes the shape; there "
            "are singular values."
        )
    said = (
        f"The eigenvalues reach furthest at {strong(clean(worst['step'], longest=60))}: "
        f"ζ_SI = {strong(number(worst['real_extent_mean']))} on average over {shown.images}."
    )
    negative, outside = shown.mean("negative_share_mean"), shown.mean("outside_share")
    if negative is None or outside is None:
        return f"{said} Only those at the ends were computed."
    return (
        f"{said} {strong(percent(negative))} of the eigenvalues have a negative real part, and "
        f"{strong(percent(outside))} lie outside of forward Euler's disc (means over steps)."
    )


def findings(shown: Shown) -> list[str]:
    """Say what stands out."""
    every = shown.steps
    found = [*_depth(every), *_undefined(shown), *_how(every), *_relations(shown)]
    changed = [row for row in every if not row["count"]]
    if changed and len(changed) < len(every):
        names = listed([clean(row["step"], longest=40) for row in changed], most=4)
        found.append(
            f"The shape changes at {names}, so that there are no eigenvalues; the largest singular "
            "value is in the table."
        )
    return found


def _depth(every: list[Rowed]) -> list[str]:
    """Compare the first and the last third of the steps."""
    counted = known(every, "negative_share_mean")
    third = len(counted) // 3
    if not third:
        return []
    (p0, z0), (p1, z1) = (
        [float(np.mean([row[key] for row in part]))
         for key in ("negative_share_mean", "real_extent_mean")]
        for part in (counted[:third], counted[-third:])
    )  # fmt: skip
    return [
        f"From the first to the last third of the steps the negative share P goes from "
        f"{strong(percent(p0))} to {strong(percent(p1))}, and ζ_SI from {strong(number(z0))} to "
        f"{strong(number(z1))}."
    ]


def _undefined(shown: Shown) -> list[str]:
    square = sum(bool(row["count"]) for row in shown.steps) * len(shown.report.images)
    missing = square - sum(row["defined"] for row in shown.steps)
    if not missing:
        return []
    return [
        f"S is not defined for {count(missing)} of {count(square)} spectra: their smallest real "
        "part is zero. They are left out of its means."
    ]


def _how(every: list[Rowed]) -> list[str]:
    methods = {row["method"] for row in every if row["count"]}
    found = []
    if any("krylov" in method for method in methods):
        found.append(
            "Where the method is krylov, only the eigenvalues at both ends and the largest are "
            "known, and no shares."
        )
    if any("planes" in method for method in methods):
        found.append(
            "These are eigenvalues of H × W slices of the Jacobian, as the block-level paper took "
            f"them, and {strong('not those of the Jacobian')}."
        )
    return found


def _relations(shown: Shown) -> list[str]:
    """Tell the strongest relation with the loss, if one is not by chance."""
    tried = [row for row in known(shown.relations, "spearman_holm") if row["target"] == "loss"]
    if not tried or len(shown.report.images) < FEWEST:
        return []
    sure = [row for row in tried if row["spearman_holm"] <= SMALL and row["kendall_holm"] <= SMALL]
    if not sure:
        return [
            f"Over {shown.images}, no figure of any step goes with the loss by more "
            "than chance (Holm-corrected p above 0.05)."
        ]
    best = max(sure, key=lambda row: abs(row["spearman"]))
    return [
        f"{SYMBOLS[best['figure']]} of {strong(clean(best['step'], longest=60))} goes with the "
        f"loss: Spearman's coefficient is {strong(number(best['spearman'], 2))} over "
        f"{images(best['samples'], shown.report.noun)}."
    ]
