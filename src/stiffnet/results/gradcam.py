"""The average Grad-CAM of a network: mean maps, and where on the image their evidence lies."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import stdtrit

from stiffnet.results.record import Record
from stiffnet.stiffness.given import Floats

Ints = npt.NDArray[np.int64]

UNIFORM = 0.25
"""Share of the central square in a map that is the same everywhere."""
IMAGES, SHIFTED, NOISE = "images", "shifted", "noise"
PREDICTED, LABEL = "predicted", "label"
_LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A number that was estimated from images; NaN where there is none."""

    value: float
    error: float
    """Its standard error."""
    images: int

    @property
    def interval(self) -> tuple[float, float]:
        """The two-sided 95 % interval, by Student's t."""
        if self.images < 2:
            return float("nan"), float("nan")
        reach = float(stdtrit(self.images - 1, (1 + _LEVEL) / 2)) * self.error
        return self.value - reach, self.value + reach

    @classmethod
    def of(cls, value: float, influence: Floats) -> "Estimate":
        """Return an estimate with the error that the influence of each image on it gives."""
        images = len(influence)
        if images < 2 or not np.isfinite(value):
            return cls(value, float("nan"), images)
        return cls(value, float(np.sqrt((influence**2).sum() / (images * (images - 1)))), images)


@dataclass(frozen=True, eq=False)
class MapsOf:
    """The maps of one kind of images, each scaled so that its largest value is 1.

    Of each map, integrals over an image whose sides have length 1; all of them are 0 for a map that
    is zero. A cell of a map counts as a square of one value.
    """

    kind: str
    """``"images"``, ``"shifted"`` or ``"noise"``."""
    mean: Floats
    """(rows, columns) mean of the maps that are not zero; NaN where there is none."""
    explained: Ints
    """(images,) number of the output that each map is the evidence for."""
    total: Floats
    """(images,) integral of the map."""
    centre: Floats
    """The same over the central square, whose side is half of the image's."""
    moved: Floats
    """The same over that square after it moved to the right by the report's `shift`."""
    x: Floats
    """Integral of the map times the distance to the right of the centre, in sides."""
    y: Floats
    """The same below the centre."""
    carried: Floats
    """What `x` would be if the map had moved to the right by `shift`, and around the edge."""

    @property
    def zero(self) -> int:
        """Number of maps that are zero everywhere: no evidence for the class."""
        return int((self.total == 0).sum())

    def mass(self, of: str, chosen: npt.NDArray[np.bool_] | None = None) -> Estimate:
        """Return an integral of the mean map, as a share of the whole of it."""
        return Estimate.of(*self.influence(of, chosen))

    def influence(
        self, of: str, chosen: npt.NDArray[np.bool_] | None = None
    ) -> tuple[float, Floats]:
        """Return such a share, and how each image pulls it: (partᵢ - share · totalᵢ) / mean total.

        It is a ratio of two sums over images, and the mean square of these is n times its variance.
        """
        part: Floats = getattr(self, of)
        total = self.total
        if chosen is not None:
            part, total = part[chosen], total[chosen]
        whole = float(total.sum())
        if not whole:
            return float("nan"), np.full(len(total), np.nan)
        share = float(part.sum()) / whole
        return share, (part - share * total) * (len(total) / whole)


@dataclass(frozen=True, eq=False)
class GradcamReport(Record):
    """Where on the image a network finds its evidence, on average.

    Beside the images there are two controls: the same images shifted to the right, around their
    edge, with the evidence for the same classes; and noise of their mean and deviation.
    """

    KIND = "Grad-CAM report"
    AGAIN = "Run `stiffnet gradcam` again"

    layer: str
    """The module whose output the maps are of."""
    target: str
    """Whose evidence: that for the ``"predicted"`` class or for the ``"label"``."""
    shift: float
    """How far images were shifted, as a share of their width."""
    views: tuple[MapsOf, ...]
    """Of the images, of the shifted images, and of noise."""
    label: Ints
    """(images,) number of the class of each image; empty where there are no labels."""
    classes: tuple[str, ...]
    """Names of these numbers."""
    class_label: Ints
    """Numbers of the classes that have images."""
    class_mean: Floats
    """(those classes, rows, columns) mean of each one's maps."""
    notes: tuple[str, ...] = ()
    """What a reader should know, in sentences."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What made it: model, data, versions, command."""

    @property
    def samples(self) -> int:
        """Number of images."""
        return len(self.images.total)

    @property
    def images(self) -> MapsOf:
        """The maps of the images themselves."""
        return self.views[0]

    @property
    def shifted(self) -> MapsOf:
        """The maps of the shifted images."""
        return self.views[1]

    @property
    def noise(self) -> MapsOf:
        """The maps of noise."""
        return self.views[2]

    @property
    def above_noise(self) -> Estimate:
        """By how much more of the mean map lies in the centre than for noise."""
        ours, others = self.images.mass("centre"), self.noise.mass("centre")
        error = float(np.hypot(ours.error, others.error))
        return Estimate(ours.value - others.value, error, self.samples)

    @property
    def travel(self) -> Estimate:
        """How far the centre of mass moved to the right with the shift, in sides."""
        return _difference(self.shifted.influence("x"), self.images.influence("x"))

    @property
    def full_travel(self) -> Estimate:
        """How far it would have moved if every map had moved as its image did."""
        return _difference(self.images.influence("carried"), self.images.influence("x"))

    @property
    def lead(self) -> Estimate:
        """How much more of the mean map the central square has than the one that moves along."""
        return _difference(self.images.influence("centre"), self.images.influence("moved"))

    @property
    def followed(self) -> Estimate:
        """Which share of this lead moves along with the images: 1 follows the data, 0 stays.

        NaN where the lead is not distinct from zero at 95 %: then nothing could be seen moving.
        """
        low, high = self.lead.interval
        if not (low > 0 or high < 0):
            return Estimate(float("nan"), float("nan"), self.samples)
        before, before_pull = self.images.influence("moved")
        after, after_pull = self.shifted.influence("moved")
        full, full_pull = self.images.influence("centre")  # what it had if every map moved along
        share = (after - before) / (full - before)
        change = (after_pull - before_pull) - share * (full_pull - before_pull)
        return Estimate.of(share, change / (full - before))

    def to_frame(self) -> pd.DataFrame:
        """One row for each kind of images, then one for each class of the images themselves."""
        rows = [_row(view, view.kind, None) for view in self.views]
        for label in self.class_label.tolist():
            rows.append(_row(self.images, self.class_name(label), self.label == label))
        return pd.DataFrame(rows)


def _difference(one: tuple[float, Floats], other: tuple[float, Floats]) -> Estimate:
    """Return the difference of two shares of the same images."""
    return Estimate.of(one[0] - other[0], one[1] - other[1])


def _row(
    view: MapsOf, name: str, chosen: npt.NDArray[np.bool_] | None
) -> dict[str, float | int | str]:
    total = view.total if chosen is None else view.total[chosen]
    row: dict[str, float | int | str] = {
        "of": name,
        "kind": view.kind if chosen is None else "class",
        "images": len(total),
        "zero": int((total == 0).sum()),
    }
    for of in ("centre", "moved", "x", "y"):
        found = view.mass(of, chosen)
        row |= {of: found.value, f"{of}_se": found.error}
    return row
