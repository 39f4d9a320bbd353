"""What is shown of a measured network: a report's numbers and what is counted from them, once."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from stiffnet.stiffness.given import Floats
from stiffnet.stiffness.total import proportion

if TYPE_CHECKING:
    from stiffnet.results.stiffness import StiffnessReport

GRID = 61  # points along each threshold of the surfaces
CURVES = 4  # stiffest and calmest inputs shown
_SAME = ("title", "tns", "tns_se", "tns_steps", "increment_total", "increment_total_se", "notes",
         "samples", "accuracy", "top5", "noun")  # fmt: skip


@dataclass(frozen=True)
class Curve:
    """The NSI of one input at every step, in execution order."""

    label: str
    tns: float
    nsi: Floats


@dataclass(frozen=True)
class StiffnessView:
    """One measured network, ready to be shown.

    Every string in here is a user's: the page and the terminal neutralise all of them. Missing
    numbers are ``None`` or NaN and are shown as a dash.
    """

    title: str
    """What was measured, for example ``"resnet20_cifar after training"``."""
    facts: dict[str, str]
    """Where the numbers come from: model, data, weights, device, versions, command."""
    tns: float | None
    tns_se: float | None
    tns_steps: int
    increment_total: float | None
    increment_total_se: float | None
    notes: tuple[str, ...]
    samples: int
    kept: int
    """How many inputs' values were kept; the surfaces and the curves are over those."""
    accuracy: float | None
    steps: pd.DataFrame
    """One row a step, as `StiffnessReport.to_frame` gives them."""
    stages: pd.DataFrame
    """One row a stage, as `StiffnessReport.stages` gives them."""
    m1: Floats
    """The grid of thresholds relative to the mean of a stage."""
    m2: Floats
    """The grid of absolute thresholds."""
    delta: Floats
    """δ(M₁, M₂), of shape ``(len(m1), len(m2))``, in [0, 1]."""
    proportion: Floats
    """p̂(M₁, M₂), of the same shape, in [0, 1]."""
    stiffest: tuple[Curve, ...]
    """The inputs of the largest TNS."""
    calmest: tuple[Curve, ...]
    labels: pd.DataFrame | None
    """One row a label: `label` is its name here, then as `StiffnessReport.by_label` gives them."""
    relations: pd.DataFrame | None
    """Correlations with other values of a sample, as `StiffnessReport.relate` gives them."""
    top5: float | None = None
    noun: str = "images"
    """What was measured, in the plural."""


def view_of(report: "StiffnessReport") -> StiffnessView:
    """Count everything that is shown of a report."""
    kept = report.kept
    countable = bool(len(kept) and report.counted)
    m1, m2 = _grid(report) if countable else (np.linspace(0, 1, GRID),) * 2
    labels = None
    if kept.label is not None and len(kept):
        labels = report.by_label().drop(columns="label").rename(columns={"name": "label"})
    empty = np.zeros((len(m1), len(m2)))
    shares = proportion(*report.countable(), m1, m2, errors=False) if countable else None
    curves = len(kept) and report.tns_steps  # else all have the same total, or none
    return StiffnessView(
        **{name: getattr(report, name) for name in _SAME},
        facts=dict(report.facts),
        kept=len(kept),
        steps=report.to_frame(),
        stages=report.stages(),
        m1=m1,
        m2=m2,
        delta=report.delta(m1, m2).value if countable else empty,
        proportion=shares.value if shares else empty,
        stiffest=_curves(report, -1) if curves else (),
        calmest=_curves(report, 1) if curves else (),
        labels=labels,
        relations=report.relate() if kept.loss is not None and len(kept) else None,
    )


def _grid(report: "StiffnessReport") -> tuple[Floats, Floats]:
    """Thresholds from zero to where one input in a hundred is left; M₁ = 1 is one of them."""
    values, stages = report.countable()
    tops = [values[:, [s == stage for s in stages]] for stage in dict.fromkeys(stages)]
    peaks = np.stack([top.max(axis=1) for top in tops])
    means = np.stack([top.mean(axis=1) for top in tops])
    ratios = np.divide(peaks, means, out=np.ones_like(peaks), where=means > 0) - 1
    ends = [float(np.quantile(x.max(axis=0), 0.99)) for x in (ratios, peaks)]
    per_unit = max(1, round((GRID - 1) / max(1.0, ends[0])))
    m1 = np.arange(int(max(1.0, ends[0]) * per_unit) + 1) / per_unit
    return m1, np.linspace(0, ends[1] or 1.0, GRID)


def _curves(report: "StiffnessReport", sign: int) -> tuple[Curve, ...]:
    values = report.sample_tns
    order = np.argsort(sign * values, kind="stable")[:CURVES]
    return tuple(Curve(_name(report, i), float(values[i]), report.nsi[i]) for i in order)


def _name(report: "StiffnessReport", row: int) -> str:
    kept = report.kept
    name = f"sample {kept.number[row]}"
    if kept.label is None:
        return name
    verdict = ""
    if kept.correct is not None:
        verdict = ", right" if kept.correct[row] else ", wrong"
    return f"{name} ({report.class_name(int(kept.label[row]))}{verdict})"
