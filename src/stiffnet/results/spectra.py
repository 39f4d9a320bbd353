"""The spectra of several steps on several images, and what goes with them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pandas as pd

from stiffnet.errors import StepError
from stiffnet.results.record import Record
from stiffnet.results.spectrum import Spectrum
from stiffnet.stiffness.relate import relate

FIGURES = ("stiffness_index", "absolute_index", "negative_share", "real_extent", "radius")
"""What is averaged over images and related to their losses."""


@dataclass(frozen=True)
class Seen:
    """One image, and what the network made of it."""

    number: int
    """Position in the data."""
    label: int | None = None
    loss: float | None = None
    correct: bool | None = None


@dataclass(frozen=True, eq=False)
class SpectrumReport(Record):
    """The spectra of steps of a network, image by image."""

    KIND = "spectra"
    AGAIN = "Compute them again"

    images: tuple[Seen, ...]
    spectra: Mapping[str, tuple[Spectrum, ...]]
    """For each step, in the order in which they run, one spectrum an image."""
    classes: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def steps(self) -> tuple[str, ...]:
        """Names of the steps, in the order in which they run."""
        return tuple(self.spectra)

    def to_frame(self) -> pd.DataFrame:
        """One row a step and image; a figure that is not defined there is NaN."""
        rows = [
            {"image": image.number, "label": image.label, "loss": image.loss,
             "correct": image.correct} | found.row()
            for spectra in self.spectra.values()
            for image, found in zip(self.images, spectra, strict=True)
        ]  # fmt: skip
        frame = pd.DataFrame(rows)
        for name in FIGURES:
            frame[name] = frame[name].astype(float)
        return frame

    def by_step(self) -> pd.DataFrame:
        """One row a step: mean and standard deviation of each figure over the images that have it.

        The column ``defined`` counts the images on which S is.
        """
        return self._grouped("step", list(self.spectra))

    def by_label(self) -> pd.DataFrame:
        """One row a label, over all steps that have eigenvalues.

        Raises:
            StepError: If the data had no labels.
        """
        if any(image.label is None for image in self.images):
            raise StepError("The data had no labels. Give labelled images to group by label.")
        rows = self._grouped("label", sorted({int(image.label or 0) for image in self.images}))
        rows.insert(1, "name", [self.class_name(i) for i in rows["label"]])
        return rows

    def _grouped(self, by: str, order: Sequence[Any]) -> pd.DataFrame:
        groups = self.to_frame().groupby(by, sort=False)
        table = groups[list(FIGURES)].agg(["mean", "std"])
        table.columns = pd.Index(["_".join(names) for names in table.columns])
        table.insert(0, "images", groups["image"].nunique())
        table.insert(1, "defined", groups["stiffness_index"].count())
        return table.loc[list(order)].reset_index()

    def relate(self) -> pd.DataFrame:
        """Correlations of each figure of each step with loss and correctness over the images.

        Each figure's steps are related together, so that their corrected p-values go by the number
        of steps; see `stiffnet.relate`. A step on which a figure is not defined for every image
        is left out for that figure.

        Raises:
            StepError: If there are no labels, and so no loss.
        """
        if any(image.loss is None for image in self.images):
            raise StepError(
                "There is no loss to relate to. Give labelled images, and a classifier."
            )
        targets = {
            "accuracy": [float(bool(image.correct)) for image in self.images],
            "loss": [float(image.loss or 0.0) for image in self.images],
        }
        frame = self.to_frame()
        tables = []
        for figure in FIGURES:
            values = {
                step: group[figure].to_numpy()
                for step, group in frame.groupby("step", sort=False)
                if group[figure].notna().all()
            }
            if values:
                table = relate(values, targets)  # type: ignore[arg-type]
                table.insert(0, "figure", figure)
                tables.append(table)
        if not tables:
            raise StepError("No figure is defined on every image, so there is nothing to relate.")
        return pd.concat(tables, ignore_index=True)

    def to_row(self) -> dict[str, Any]:
        """Everything, as JSON types; the steps as pairs, in their order."""
        row = super().to_row()
        return row | {"spectra": list(row["spectra"].items())}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Make one of what `to_row` gave."""
        return super().from_row({**row, "spectra": dict(row["spectra"])})
