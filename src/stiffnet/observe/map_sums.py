"""Sums of maps that come in batches, overall and by class, and where the mass of each map lies.

A map of h by w cells covers the image, whose sides have length 1; a cell is a square of one value.
"""

from typing import Any

import numpy as np

from stiffnet.errors import DataError
from stiffnet.observe.channel_moments import Floats
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
            self.by_label[label] = (total + maps[own].sum(axis=0), many + int(there[own].sum()))

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


def masses(maps: Floats, shift: float) -> dict[str, Floats]:
    """Return integrals over (images, rows, columns) maps, by the names that `MapsOf` has.

    >>> found = masses(np.ones((1, 7, 7)), 0.25)
    >>> {name: round(float(value[0]), 12) + 0.0 for name, value in found.items()}
    {'total': 1.0, 'centre': 0.25, 'moved': 0.25, 'x': 0.0, 'y': 0.0, 'carried': 0.0}
    """
    _, height, width = maps.shape
    rows, columns = covered(height, 0.25, 0.75), covered(width, 0.25, 0.75)
    moved = covered(width, 0.25 + shift, 0.75 + shift)
    below, right = places(height), places(width)
    around = covered(width, 1 - shift, 1)  # the part that leaves on the right enters on the left
    ones_y, ones_x = np.ones(height), np.ones(width)

    def integral(weights_y: Floats, weights_x: Floats) -> Floats:
        found: Floats = np.einsum("nyx,y,x->n", maps, weights_y, weights_x) / (height * width)
        return found

    return {
        "total": integral(ones_y, ones_x),
        "centre": integral(rows, columns),
        "moved": integral(rows, moved),
        "x": integral(ones_y, right),
        "y": integral(below, ones_x),
        "carried": integral(ones_y, right + shift - around),
    }


def covered(cells: int, low: float, high: float) -> Floats:
    """Return which share of each of `cells` on [0, 1] lies between two points, around the edge.

    >>> covered(4, 0.25, 0.75).tolist(), covered(3, 0.25, 0.75).round(12).tolist()
    ([0.0, 1.0, 1.0, 0.0], [0.25, 1.0, 0.25])
    """
    start = np.arange(cells) / cells
    end = (np.arange(cells) + 1) / cells
    turns = (
        np.clip(np.minimum(end, high + turn) - np.maximum(start, low + turn), 0, None)
        for turn in (-1, 0, 1)
    )
    found: Floats = sum(turns) * cells
    return found


def places(cells: int) -> Floats:
    """Return how far the middle of each cell is from that of the image.

    >>> places(4).tolist()
    [-0.375, -0.125, 0.125, 0.375]
    """
    return (np.arange(cells) + 0.5) / cells - 0.5
