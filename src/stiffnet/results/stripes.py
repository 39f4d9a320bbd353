"""The result of looking at attention values: statistics of every module, kept, shown and saved."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from stiffnet.results.drift import Drift
from stiffnet.results.growth import Growth
from stiffnet.results.record import Record
from stiffnet.sealed import packed, packed_fields, unpacked, unpacked_fields

Floats = npt.NDArray[np.float64]


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
                    "value_mean": _mean(module.value_mean),
                    "value_std_mean": _mean(module.value_std),
                    "value_std_max": _largest(module.value_std),
                    "input_std_mean": _mean(module.input_std),
                    "silent": module.silent,
                }
                for module in self.modules
            ]
        )

    def adding(self, *, drift: Drift | None = None, growth: Growth | None = None) -> "StripeReport":
        """Return this report with what `stripes_over_epochs` or `growth` found."""
        return replace(self, drift=drift or self.drift, growth=growth or self.growth)

    def to_row(self) -> dict[str, Any]:
        """Everything, as JSON types."""
        return {
            "facts": dict(self.facts),
            "samples": self.samples,
            "number": packed(self.number),
            "modules": [_row(module) for module in self.modules],
            "drift": self.drift and self.drift.to_row(),
            "growth": self.growth and self.growth.to_row(),
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "StripeReport":
        """Make one of what `to_row` gave."""
        return cls(
            modules=tuple(_module(each) for each in row["modules"]),
            samples=row["samples"],
            number=unpacked(row["number"]),
            drift=row["drift"] and Drift.from_row(row["drift"]),
            growth=row["growth"] and Growth.from_row(row["growth"]),
            facts=row["facts"],
        )


def _row(module: ModuleStripes) -> dict[str, Any]:
    numbers = {name: getattr(module, name) for name in _NUMBERS}
    known = {name: value if np.isfinite(value) else None for name, value in numbers.items()}
    return packed_fields(module) | known


def _module(row: dict[str, Any]) -> ModuleStripes:
    numbers = {name: np.nan if row[name] is None else row[name] for name in _NUMBERS}
    return ModuleStripes(**unpacked_fields(row) | numbers)


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else np.nan


def _largest(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.max()) if known.size else np.nan
