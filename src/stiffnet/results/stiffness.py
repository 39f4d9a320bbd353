"""The result of measuring a network: statistics of every step, kept, shown and saved."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from rich.console import Group, RenderableType

from stiffnet.errors import StepError
from stiffnet.files import atomic_write
from stiffnet.report.folded import FoldView
from stiffnet.report.page import stiffness_page
from stiffnet.report.terminal import steps_table, summary as terminal_summary
from stiffnet.report.view import Curve, StiffnessView
from stiffnet.results.stored import read_step, read_summary, summary_row
from stiffnet.sealed import packed, sealed, unpacked, unsealed
from stiffnet.stiffness.quantiles import ranks
from stiffnet.stiffness.relate import relate
from stiffnet.stiffness.summary import StiffnessSummary
from stiffnet.stiffness.total import Estimate, delta, proportion, tns
from stiffnet.trajectory.steps import Step

FORMAT = "stiffnet stiffness report, version 1"
DAMAGED = (
    "is no stiffness report of ours, or it is damaged. Measure again, or name a file that "
    "`StiffnessReport.save` wrote."
)
GRID = 61  # points along each threshold of the surfaces
CURVES = 4  # stiffest and calmest inputs shown


@dataclass(frozen=True, eq=False)
class Samples:
    """What was kept sample by sample: one entry or row each, in the order of the data."""

    number: npt.NDArray[np.int64]
    """Position in the data."""
    nsi: npt.NDArray[np.float64]
    """(samples, steps) indices of all steps, counted or not."""
    label: npt.NDArray[np.int64] | None = None
    loss: npt.NDArray[np.float64] | None = None
    correct: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.number)


@dataclass(frozen=True, eq=False)
class StiffnessReport:
    """How stiff every step of a network was on some data.

    The statistics (`tns`, `to_frame`) are over all samples. What needs the values of single
    samples (`nsi`, `delta`, `proportion`, `by_label`, `relate`) is over the kept ones: all of
    them, unless there were more than `measure` was asked to keep.
    """

    steps: tuple[Step, ...]
    summary: StiffnessSummary
    kept: Samples
    accuracy: float | None = None
    classes: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    """What made it: model, data, versions, command."""
    notes: tuple[str, ...] = ()
    """What a reader has to know of these numbers, in sentences."""

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
    def nsi(self) -> npt.NDArray[np.float64]:
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
    def sample_tns(self) -> npt.NDArray[np.float64]:
        """Total neural stiffness of each kept sample.

        Raises:
            StepError: If no step counts, or nothing was kept.
        """
        return tns(*self._countable())

    def delta(self, m1: npt.ArrayLike, m2: npt.ArrayLike) -> Estimate:
        """δ(M₁, M₂): the share of inputs with a step at or above both thresholds."""
        return delta(*self._countable(), m1, m2)

    def proportion(self, m1: npt.ArrayLike, m2: npt.ArrayLike) -> Estimate:
        """p̂(M₁, M₂): the share of steps at or above both thresholds, averaged over inputs."""
        return proportion(*self._countable(), m1, m2)

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
        s = self.summary
        own = dict(zip(s.stages, s.stage_tns, strict=True))
        errors = {} if s.stage_tns_se is None else dict(zip(s.stages, s.stage_tns_se, strict=True))
        rows = []
        for stage in dict.fromkeys(step.stage for step in self.steps):
            members = [i for i, step in enumerate(self.steps) if step.stage == stage]
            counted = [i for i in members if self.steps[i].counted]
            rows.append(
                {
                    "stage": stage,
                    "shape": "×".join(map(str, self.steps[members[0]].shape)),
                    "steps": len(members),
                    "counted": len(counted),
                    "nsi_mean": s.nsi_mean[counted].mean() if counted else np.nan,
                    "tns": own.get(stage, np.nan),
                    "tns_se": errors.get(stage, np.nan),
                }
            )
        return pd.DataFrame(rows)

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
        totals = self.sample_tns if self._counted else np.full(len(self.kept), np.nan)
        values = pd.DataFrame({"label": self.kept.label, "tns": totals})
        values["nsi"] = self.nsi[:, self._counted].mean(axis=1) if self._counted else np.nan
        values["correct"] = np.nan if self.kept.correct is None else self.kept.correct
        rows = values.groupby("label").agg(
            samples=("tns", "size"),
            tns=("tns", "mean"),
            tns_se=("tns", "sem"),
            nsi_mean=("nsi", "mean"),
            accuracy=("correct", "mean"),
        )
        rows = rows.reset_index()
        names = self.classes
        rows.insert(1, "name", [names[i] if i < len(names) else str(i) for i in rows["label"]])
        return rows

    def stiffest_steps(self, count: int = 3) -> pd.DataFrame:
        """The counted steps of the largest mean NSI, largest first."""
        frame = self.to_frame()
        return frame[frame["counted"]].nlargest(count, "nsi_mean")

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
        if not self._counted:
            return related
        overall = relate({"TNS": self.sample_tns}, targets)
        return pd.concat([related, overall], ignore_index=True)

    def view(self, title: str = "") -> StiffnessView:
        """What the page and the terminal show of it."""
        m1, m2 = self._grid()
        countable = bool(len(self.kept) and self._counted)
        empty = np.zeros((len(m1), len(m2)))
        has_loss = self.kept.loss is not None and len(self.kept)
        labels = None
        if self.kept.label is not None and len(self.kept):
            labels = self.by_label().drop(columns="label").rename(columns={"name": "label"})
        return StiffnessView(
            title=title or self.facts.get("model", "network"),
            facts=dict(self.facts),
            tns=self.tns,
            tns_se=self.tns_se,
            tns_steps=self.tns_steps,
            increment_total=self.increment_total,
            increment_total_se=self.increment_total_se,
            notes=self.notes,
            samples=self.samples,
            kept=len(self.kept),
            accuracy=self.accuracy,
            steps=self.to_frame(),
            stages=self.stages(),
            m1=m1,
            m2=m2,
            delta=self.delta(m1, m2).value if countable else empty,
            proportion=self.proportion(m1, m2).value if countable else empty,
            stiffest=self._curves(largest=True),
            calmest=self._curves(largest=False),
            labels=labels,
            relations=self.relate() if has_loss else None,
        )

    def html(self, path: str | os.PathLike[str], *, heading: str = "") -> Path:
        """Write one self-contained page that opens offline."""
        return atomic_write(path, page([self], heading=heading))

    def __rich__(self) -> RenderableType:
        """Return the table that a terminal shows."""
        view = self.view()
        return Group(terminal_summary(view), steps_table(view))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to one JSON file; `load` gives an equal report back."""
        return atomic_write(path, self.to_json())

    def to_json(self) -> str:
        """Everything, as text.

        Arrays of single samples are base64 of little-endian numbers, so that the text stays small
        and nothing is rounded. There is no NaN in it, and a checksum guards the rest.
        """
        content = {
            "format": FORMAT,
            "facts": dict(self.facts),
            "classes": list(self.classes),
            "accuracy": self.accuracy,
            "notes": list(self.notes),
            "steps": [asdict(step) for step in self.steps],
            "summary": summary_row(self.summary),
            "kept": {k: packed(v) for k, v in vars(self.kept).items() if v is not None},
        }
        return sealed(content)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "StiffnessReport":
        """Read what `save` wrote.

        Raises:
            StorageError: If the file cannot be read.
            CorruptFileError: If it is no report of ours, or damaged.
        """
        return unsealed(path, cls._of, form=FORMAT, damaged=DAMAGED)

    @classmethod
    def _of(cls, content: dict[str, Any]) -> "StiffnessReport":
        steps = tuple(read_step(row) for row in content["steps"])
        return cls(
            steps=steps,
            summary=read_summary(content["summary"], steps),
            kept=Samples(**{k: unpacked(v) for k, v in content["kept"].items()}),
            accuracy=content["accuracy"],
            classes=tuple(content["classes"]),
            facts=content["facts"],
            notes=tuple(content.get("notes", ())),
        )

    @property
    def _counted(self) -> list[int]:
        return [i for i, step in enumerate(self.steps) if step.counted]

    @property
    def _stages(self) -> list[int]:
        return [self.steps[i].stage for i in self._counted]

    def _countable(self) -> tuple[npt.NDArray[np.float64], list[int]]:
        if not self._counted:
            raise StepError(
                "No step of this network counts: each stage has a single step, and the first of "
                "a stage is left out. Look at `to_frame()` instead."
            )
        return self.nsi[:, self._counted], self._stages

    def _grid(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Thresholds from zero to where one input in a hundred is left; M₁ = 1 is one of them."""
        if not (len(self.kept) and self._counted):
            return np.linspace(0, 1, GRID), np.linspace(0, 1, GRID)
        values, stages = self._countable()
        tops = [values[:, [s == stage for s in stages]] for stage in dict.fromkeys(stages)]
        peaks = np.stack([top.max(axis=1) for top in tops])
        means = np.stack([top.mean(axis=1) for top in tops])
        ratios = np.divide(peaks, means, out=np.ones_like(peaks), where=means > 0) - 1
        ends = [float(np.quantile(x.max(axis=0), 0.99)) for x in (ratios, peaks)]
        per_unit = max(1, round((GRID - 1) / max(1.0, ends[0])))
        m1 = np.arange(int(max(1.0, ends[0]) * per_unit) + 1) / per_unit
        return m1, np.linspace(0, ends[1] or 1.0, GRID)

    def _curves(self, *, largest: bool) -> tuple[Curve, ...]:
        if not len(self.kept) or not self.tns_steps:  # then all have the same total, or none
            return ()
        values = self.sample_tns
        order = np.argsort(-values if largest else values, kind="stable")[:CURVES]
        return tuple(Curve(self._name(i), float(values[i]), self.kept.nsi[i]) for i in order)

    def _name(self, row: int) -> str:
        name = f"sample {self.kept.number[row]}"
        if self.kept.label is None:
            return name
        label = int(self.kept.label[row])
        word = self.classes[label] if label < len(self.classes) else str(label)
        verdict = ""
        if self.kept.correct is not None:
            verdict = ", right" if self.kept.correct[row] else ", wrong"
        return f"{name} ({word}{verdict})"


def page(
    reports: Sequence[StiffnessReport],
    *,
    titles: Sequence[str] = (),
    heading: str = "",
    fold: FoldView | None = None,
) -> str:
    """One HTML page that shows one report, or several side by side, and what folding did."""
    names = list(titles) or [""] * len(reports)
    views = [report.view(title) for report, title in zip(reports, names, strict=True)]
    heading = heading or " and ".join(dict.fromkeys(view.title for view in views))
    return stiffness_page(views, heading=heading, fold=fold)
