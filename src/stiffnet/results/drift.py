"""How far the values of attention moved from epoch to epoch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from stiffnet.sealed import packed, unpacked


@dataclass(frozen=True, eq=False)
class Drift:
    """First differences of attention values over epochs: |a(e + 1) - a(e)|, mean over images."""

    epochs: tuple[tuple[int, int], ...]
    """The two epochs of each difference."""
    images: int
    differences: Mapping[str, npt.NDArray[np.float64]]
    """For each module (differences, channels); NaN where a channel's rate was always zero."""

    def means(self) -> npt.NDArray[np.float64]:
        """(modules, differences): the mean over channels."""
        frames = map(pd.DataFrame, self.differences.values())
        return np.stack([frame.mean(axis=1).to_numpy() for frame in frames])

    def to_frame(self) -> pd.DataFrame:
        """One row a module and pair of epochs: mean over channels, and the largest channel."""
        means = self.means()
        return pd.DataFrame(
            [
                {
                    "step": step,
                    "epoch": earlier,
                    "next_epoch": later,
                    "difference_mean": means[i, j],
                    "difference_max": pd.Series(found[j]).max(),
                }
                for i, (step, found) in enumerate(self.differences.items())
                for j, (earlier, later) in enumerate(self.epochs)
            ]
        )

    def to_row(self) -> dict[str, Any]:
        """Everything, as JSON types."""
        return {
            "epochs": [list(pair) for pair in self.epochs],
            "images": self.images,
            "steps": list(self.differences),
            "differences": [packed(found) for found in self.differences.values()],
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Drift":
        """Make one of what `to_row` gave."""
        found = [unpacked(value) for value in row["differences"]]
        pairs = tuple((int(earlier), int(later)) for earlier, later in row["epochs"])
        return cls(pairs, row["images"], dict(zip(row["steps"], found, strict=True)))
