"""Sums of maps that come in batches, overall and by class, and a row of numbers for each map."""

from typing import Any

import numpy as np

from stiffnet.errors import DataError
from stiffnet.observe.channel_moments import Floats
from stiffnet.observe.map_mass import masses
from stiffnet.results.gradcam import Ints, MapsOf


class MapSums:
    """Sums of maps, and a row of numbers for each."""

    def __init__(self, shift: float) -> None:
        self._shift = shift
        self._sum: Floats | None = None
        self._known = 0
        self.by_label: dict[int, tuple[Floats, int]] = {}
        self._rows: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return sum(len(rows["total"]) for rows in self._rows)

    def add(self, raw: Floats, explained: Ints, labels: Ints | None) -> None:
        """Take in maps as they are, not scaled."""
        largest = raw.max(axis=(1, 2))
        there = largest > 0
        maps = raw / np.where(there, largest, 1.0)[:, None, None]
        self._sum = maps.sum(axis=0) + (0.0 if self._sum is None else self._sum)
        self._known += int(there.sum())
        self._rows.append(masses(maps, self._shift) | {"explained": explained, "label": labels})
        for label in () if labels is None else np.unique(labels).tolist():
            own = labels == label
            total, many = self.by_label.get(label, (np.zeros(maps.shape[1:]), 0))
            self.by_label[label] = (
                total + maps[own].sum(axis=0),
                many + int(there[own].sum()),
            )

    def label(self) -> Ints:
        """Return the label of each image; none where there are none."""
        given = [rows["label"] for rows in self._rows]
        if any(each is None for each in given):
            if any(each is not None for each in given):
                raise DataError(
                    "Some batches have labels and some have none. Give all of them labels, or none."
                )
            return np.zeros(0, dtype=np.int64)
        return np.concatenate(given)

    def class_mean(self, rows: int, columns: int) -> Floats:
        """Return the mean map of each class, in the order of their numbers."""
        means = [_mean(*self.by_label[label]) for label in sorted(self.by_label)]
        return np.stack(means) if means else np.zeros((0, rows, columns))

    def maps(self, kind: str) -> MapsOf:
        """Return what was seen."""
        assert self._sum is not None, "there was an image"
        names = ("explained", "total", "centre", "moved", "x", "y", "carried")
        columns = {name: np.concatenate([rows[name] for rows in self._rows]) for name in names}
        return MapsOf(kind=kind, mean=_mean(self._sum, self._known), **columns)


def _mean(total: Floats, many: int) -> Floats:
    return total / many if many else np.full_like(total, np.nan)
