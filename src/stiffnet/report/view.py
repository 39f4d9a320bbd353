"""What the report shows of one measured network: plain rows and arrays, no model."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

STEP_COLUMNS = (
    "step",
    "stage",
    "counted",
    "identity",
    "gated",
    "shape",
    "nsi_mean",
    "nsi_std",
    "nsi_median",
    "nsi_q05",
    "nsi_q25",
    "nsi_q75",
    "nsi_q95",
    "increment_mean",
)
STAGE_COLUMNS = ("stage", "shape", "steps", "counted", "nsi_mean", "tns", "tns_se")
LABEL_COLUMNS = ("label", "samples", "tns", "tns_se", "accuracy")
RELATION_COLUMNS = (
    "step",
    "target",
    "pearson",
    "pearson_p",
    "pearson_holm",
    "spearman",
    "spearman_p",
    "spearman_holm",
    "kendall",
    "kendall_p",
    "kendall_holm",
    "samples",
    "note",
)


@dataclass(frozen=True)
class Curve:
    """The NSI of one input at every step, in execution order."""

    label: str
    tns: float
    nsi: np.ndarray


@dataclass(frozen=True)
class StiffnessView:
    """One measured network, ready to be shown.

    Every string in here is a user's: the page and the terminal neutralise all of them. Missing
    numbers are ``None`` or NaN and are shown as a dash.

    Args:
        title: What was measured, for example ``"resnet20_cifar after training"``.
        facts: Where the numbers come from: model, data, weights, device, versions, command.
        tns: Total neural stiffness, the mean over all `samples`; None where no step counts.
        tns_se: Its standard error.
        tns_steps: How many steps it rests on.
        increment_total: The same total with increments in the place of indices.
        increment_total_se: Its standard error.
        notes: What a reader has to know of these numbers, in sentences.
        samples: How many inputs were measured.
        kept: How many inputs' values were kept; the surfaces and the curves are over those.
        accuracy: The share of inputs that the network got right.
        steps: One row a step, in execution order, with `STEP_COLUMNS`.
        stages: One row a stage, with `STAGE_COLUMNS`.
        m1: The grid of thresholds relative to the mean of a stage.
        m2: The grid of absolute thresholds.
        delta: δ(M₁, M₂), of shape ``(len(m1), len(m2))``, in [0, 1].
        proportion: p̂(M₁, M₂), of the same shape, in [0, 1].
        stiffest: The inputs of the largest TNS.
        calmest: The inputs of the smallest TNS.
        labels: One row a label, with `LABEL_COLUMNS`.
        relations: Correlations with other values of a sample, with `RELATION_COLUMNS`.
    """

    title: str
    facts: dict[str, str]
    tns: float | None
    tns_se: float | None
    tns_steps: int
    increment_total: float | None
    increment_total_se: float | None
    notes: tuple[str, ...]
    samples: int
    kept: int
    accuracy: float | None
    steps: pd.DataFrame
    stages: pd.DataFrame
    m1: np.ndarray
    m2: np.ndarray
    delta: np.ndarray
    proportion: np.ndarray
    stiffest: tuple[Curve, ...]
    calmest: tuple[Curve, ...]
    labels: pd.DataFrame | None
    relations: pd.DataFrame | None

    def __post_init__(self) -> None:
        grid = (len(self.m1), len(self.m2))
        assert self.delta.shape == grid, f"delta is {self.delta.shape}, its grid {grid}"
        assert self.proportion.shape == grid, f"proportion is {self.proportion.shape}, not {grid}"
        for name, frame, columns in (
            ("steps", self.steps, STEP_COLUMNS),
            ("stages", self.stages, STAGE_COLUMNS),
            ("labels", self.labels, LABEL_COLUMNS),
            ("relations", self.relations, RELATION_COLUMNS),
        ):
            missing = [] if frame is None else [c for c in columns if c not in frame.columns]
            assert not missing, f"`{name}` has no column {', '.join(missing)}"
        for curve in (*self.stiffest, *self.calmest):
            assert len(curve.nsi) == len(self.steps), "a curve has one value a step"
