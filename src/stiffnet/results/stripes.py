"""The result of looking at attention values: statistics of every module, kept, shown and saved."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from stiffnet.results.drift import Drift
from stiffnet.results.growth import Growth
from stiffnet.results.record import Record
from stiffnet.stiffness.given import Floats


@dataclass(frozen=True, eq=False)
class ModuleStripes:
    """The values that one attention module gave to many images, channel by channel."""

    step: str
    """The step or position that it sits on."""
    module: str
    """What it is called."""
    spatial: bool
    """Its gate differs between positions; a value is then the single number that comes closest."""
    score: float
    """Share of the values' variance that lies between channels; 1 is a perfect stripe."""
    cost: float
    """Relative change of what the module lets through when its values become their means."""
    silent: int
    """Pairs of image and channel without a value, because the rate was zero; left out."""
    value_mean: Floats
    value_std: Floats
    """(channels,) standard deviation over images (divisor N - 1)."""
    input_mean: Floats
    input_std: Floats
    """(channels,) the same of the module's input, the mean rate over positions."""
    values: Floats
    """(kept images, channels); NaN where there is none."""
    inputs: Floats


_NUMBERS = ("score", "cost")


@dataclass(frozen=True, eq=False)
class StripeReport(Record):
    """How constant the values of a network's attention modules are.

    The statistics are over all images. `values`, and the picture, are of a few of them.
    """

    KIND = "stripe report"
    AGAIN = "Make it again"

    modules: tuple[ModuleStripes, ...]
    samples: int
    number: npt.NDArray[np.int64]
    """Positions in the data of the images whose values were kept."""
    drift: Drift | None = None
    growth: Growth | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    """What made it: model, data, versions, command."""

    @property
    def values(self) -> dict[str, Floats]:
        """(kept images, channels) values of every module, by its step."""
        return {module.step: module.values for module in self.modules}

    def to_frame(self) -> pd.DataFrame:
        """One row a module, in the order in which they run."""
        return pd.DataFrame(
            [
                {
                    "step": module.step,
                    "module": module.module,
                    "channels": len(module.value_mean),
                    "spatial": module.spatial,
                    "score": module.score,
                    "cost": module.cost,
                    "value_mean": pd.Series(module.value_mean).mean(),
                    "value_std_mean": pd.Series(module.value_std).mean(),
                    "value_std_max": pd.Series(module.value_std).max(),
                    "input_std_mean": pd.Series(module.input_std).mean(),
                    "silent": module.silent,
                }
                for module in self.modules
            ]
        )

    def adding(self, *, drift: Drift | None = None, growth: Growth | None = None) -> "StripeReport":
        """Return this report with what `stripes_over_epochs` or `growth` found."""
        return replace(self, drift=drift or self.drift, growth=growth or self.growth)

    def to_row(self) -> dict[str, Any]:
        """Everything, as JSON types; a score or cost that is no number is None."""
        row = super().to_row()
        for module in row["modules"]:
            module.update({name: None for name in _NUMBERS if not np.isfinite(module[name])})
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Make one of what `to_row` gave."""
        unknown = dict.fromkeys(_NUMBERS, np.nan)
        modules = [
            unknown | {name: value for name, value in each.items() if value is not None}
            for each in row["modules"]
        ]
        drift = row["drift"] and Drift.from_row(row["drift"])
        return super().from_row({**row, "modules": modules, "drift": drift})
