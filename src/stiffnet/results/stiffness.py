"""The result of measuring a network: statistics of every step, kept, shown and saved."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from stiffnet.errors import StepError
from stiffnet.results.fields import row_of
from stiffnet.results.ranking import stiffest
from stiffnet.results.record import Record
from stiffnet.results.stored import read_step, read_summary, step_row, summary_row
from stiffnet.results.view import StiffnessView, view_of
from stiffnet.stiffness.given import Floats
from stiffnet.stiffness.relate import relate
from stiffnet.stiffness.summary import StiffnessSummary, ranks
from stiffnet.stiffness.total import Estimate, delta, proportion, tns
from stiffnet.trajectory.step import Step


@dataclass(frozen=True, eq=False)
class Samples:
    """What was kept sample by sample: one entry or row each, in the order of the data."""

    number: npt.NDArray[np.int64]
    """Position in the data."""
    nsi: Floats
    """(samples, steps) indices of all steps, counted or not."""
    label: npt.NDArray[np.int64] | None = None
    loss: Floats | None = None
    correct: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.number)


@dataclass(frozen=True, eq=False)
class StiffnessReport(Record):
    """How stiff every step of a network was on some data.

    The statistics (`tns`, `to_frame`) are over all samples. What needs the values of single
    samples (`nsi`, `delta`, `proportion`, `by_label`, `relate`) is over the kept ones: all of
    them, unless there were more than `measure` was asked to keep.
    """

    KIND = "stiffness report"
    AGAIN = "Measure again"

    steps: tuple[Step, ...]
    summary: StiffnessSummary
    kept: Samples
    accuracy: float | None = None
    top5: float | None = None
    """Share of samples whose class is among the five largest outputs, of more than five."""
    classes: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    """What made it: model, data, versions, command."""
    notes: tuple[str, ...] = ()
    """What a reader has to know of these numbers, in sentences."""

    def __repr__(self) -> str:
        total = "none" if self.tns is None else f"{self.tns:.4g}"
        return (
            f"StiffnessReport({self.title!r}, samples={self.samples}, steps={len(self.steps)}, "
            f"tns={total})"
        )

    @property
    def samples(self) -> int:
        """Number of inputs measured."""
        return self.summary.samples

    @property
    def tns(self) -> float | None:
        """Total neural stiffness, the mean over inputs; None where no step counts."""
        return self.summary.tns

    @property
    def tns_se(self) -> float | None:
        """Standard error of `tns`; None for a single input, and where no step counts."""
        return self.summary.tns_se

    @property
    def tns_steps(self) -> int:
        """How many steps `tns` rests on: the counted ones of stages that have two or more.

        Where it is 0, `tns` is 0 or None whatever the network does.
        """
        return self.summary.tns_steps

    @property
    def increment_total(self) -> float | None:
        """What `tns` would be of increments in the place of indices; folding does not change it.

        None where no step counts, and for networks with gates that an earlier version measured.
        """
        return self.summary.increment_tns

    @property
    def increment_total_se(self) -> float | None:
        """Standard error of `increment_total`; None likewise, and for a single input."""
        return self.summary.increment_tns_se

    @property
    def nsi(self) -> Floats:
        """(kept samples, steps) indices.

        Raises:
            StepError: If nothing was kept.
        """
        if not len(self.kept):
            raise StepError(
                "No sample's values were kept, so there is nothing to count over. "
                "Measure with `keep` at 1 or more."
            )
        return self.kept.nsi

    @property
    def sample_tns(self) -> Floats:
        """Total neural stiffness of each kept sample.

        Raises:
            StepError: If no step counts, or nothing was kept.
        """
        return tns(*self.countable())

    def delta(self, m1: npt.ArrayLike, m2: npt.ArrayLike) -> Estimate:
        """δ(M₁, M₂): the share of inputs with a step at or above both thresholds."""
        return delta(*self.countable(), m1, m2)

    def proportion(self, m1: npt.ArrayLike, m2: npt.ArrayLike) -> Estimate:
        """p̂(M₁, M₂): the share of steps at or above both thresholds, averaged over inputs."""
        return proportion(*self.countable(), m1, m2)

    def to_frame(self) -> pd.DataFrame:
        """One row a step, in the order in which they run.

        A quantile is the smallest value with at least that share of all samples at or below it, so
        that the median of an even number is the lower of the middle two. It is exact where all
        samples were kept, and else, read off fine bins, within 0.5 %.
        """
        s = self.summary
        quantiles = s.nsi_quantiles
        if len(self.kept) == s.samples:
            quantiles = np.sort(self.kept.nsi, axis=0)[[rank - 1 for rank in ranks(s.samples)]]
        frame = pd.DataFrame(
            {
                "step": [step.name for step in self.steps],
                "stage": [step.stage for step in self.steps],
                "shape": ["×".join(map(str, step.shape)) for step in self.steps],
                "identity": [step.identity for step in self.steps],
                "counted": [step.counted for step in self.steps],
                "gated": [bool(step.gates) for step in self.steps],
                "nsi_mean": s.nsi_mean,
                "nsi_std": np.nan if s.nsi_std is None else s.nsi_std,
                "nsi_min": s.nsi_min,
                "nsi_max": s.nsi_max,
                "increment_mean": s.increment_mean,
                "increment_std": np.nan if s.increment_std is None else s.increment_std,
            }
        )
        for name, row in zip(("q05", "q25", "median", "q75", "q95"), quantiles, strict=True):
            frame[f"nsi_{name}"] = row
        return frame

    def stages(self) -> pd.DataFrame:
        """One row a stage: its steps, mean NSI of the counted ones, and its own TNS."""
        s, frame = self.summary, self.to_frame()
        rows = frame.groupby("stage", sort=False).agg(
            shape=("shape", "first"), steps=("step", "size"), counted=("counted", "sum")
        )
        rows["nsi_mean"] = frame[frame["counted"]].groupby("stage")["nsi_mean"].mean()
        rows["tns"] = pd.Series(s.stage_tns, s.stages, dtype=float)
        rows["tns_se"] = pd.Series(s.stage_tns_se, s.stages, dtype=float)
        return rows.reset_index()

    def by_label(self) -> pd.DataFrame:
        """One row a label: its samples, TNS with standard error, mean NSI, accuracy.

        Raises:
            StepError: If the data had no labels.
        """
        if self.kept.label is None:
            raise StepError(
                "The data had no labels. Measure with batches of (images, labels) to break the "
                "result down by label."
            )
        totals = self.sample_tns if self.counted else np.full(len(self.kept), np.nan)
        values = pd.DataFrame({"label": self.kept.label, "tns": totals})
        values["nsi"] = self.nsi[:, self.counted].mean(axis=1) if self.counted else np.nan
        values["correct"] = np.nan if self.kept.correct is None else self.kept.correct
        rows = values.groupby("label").agg(
            samples=("tns", "size"),
            tns=("tns", "mean"),
            tns_se=("tns", "sem"),
            nsi_mean=("nsi", "mean"),
            accuracy=("correct", "mean"),
        )
        rows = rows.reset_index()
        rows.insert(1, "name", [self.class_name(i) for i in rows["label"]])
        return rows

    def stiffest_steps(self, count: int = 3) -> pd.DataFrame:
        """The counted steps of the largest mean NSI, largest first."""
        frame = self.to_frame()
        return frame.iloc[stiffest(self.summary.nsi_mean.tolist(), frame["counted"])[:count]]

    def calmest_steps(self, count: int = 3) -> pd.DataFrame:
        """The counted steps that move the state least, by their mean increment."""
        frame = self.to_frame()
        return frame[frame["counted"]].nsmallest(count, "increment_mean")

    def relate(self) -> pd.DataFrame:
        """Correlations of every step's NSI and of TNS with each sample's loss and correctness.

        The columns ``..._holm`` are p-values corrected for the number of steps; see
        `stiffnet.relate`.

        Raises:
            StepError: If the data had no labels, so that there is no loss.
        """
        if self.kept.loss is None or self.kept.correct is None:
            raise StepError(
                "There is no loss to relate to. Measure a classifier with batches of "
                "(images, labels)."
            )
        targets = {"accuracy": self.kept.correct.astype(float), "loss": self.kept.loss}
        by_step = {step.name: self.nsi[:, i] for i, step in enumerate(self.steps)}
        related = relate(by_step, targets)
        if not self.counted:
            return related
        overall = relate({"TNS": self.sample_tns}, targets)
        return pd.concat([related, overall], ignore_index=True)

    def view(self, title: str = "") -> StiffnessView:
        """What the page and the terminal show of it; it is counted once."""
        return replace(self._view, title=title) if title else self._view

    @cached_property
    def _view(self) -> StiffnessView:
        return view_of(self)

    def to_row(self) -> dict[str, Any]:
        """Everything, as JSON types."""
        return {
            "facts": dict(self.facts),
            "classes": list(self.classes),
            "accuracy": self.accuracy,
            "top5": self.top5,
            "notes": list(self.notes),
            "steps": [step_row(step) for step in self.steps],
            "summary": summary_row(self.summary),
            "kept": {k: v for k, v in row_of(self.kept).items() if v is not None},
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Make one of what `to_row` gave, in this version or an earlier one."""
        steps = [read_step(each) for each in row["steps"]]
        summary = read_summary(row["summary"], steps)
        return super().from_row({**row, "steps": steps, "summary": summary})

    @property
    def counted(self) -> list[int]:
        """Positions of the steps that count."""
        return [i for i, step in enumerate(self.steps) if step.counted]

    def countable(self) -> tuple[Floats, list[int]]:
        """The kept indices of the steps that count, and their stages; a StepError without any."""
        if not self.counted:
            raise StepError(
                "No step of this network counts: each stage has a single step, and the first of "
                "a stage is left out. Look at `to_frame()` instead."
            )
        return self.nsi[:, self.counted], [self.steps[i].stage for i in self.counted]
