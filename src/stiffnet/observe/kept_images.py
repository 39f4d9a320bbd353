"""A few of many images, evenly spread over all that come."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stiffnet.observe.channel_moments import Floats


@dataclass
class KeptImages:
    """Keeps every k-th image, with k a power of two, so that at most `most` are held.

    Which images stay depends on their positions only, never on how they were batched; and data
    that is sorted by class is seen in all of its classes.
    """

    most: int
    seen: int = 0
    stride: int = 1
    number: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    rows: dict[str, Floats] = field(default_factory=dict)

    def add(self, **batch: Floats) -> None:
        """Take in rows of the next images."""
        size = len(next(iter(batch.values())))
        number = np.arange(self.seen, self.seen + size, dtype=np.int64)
        self.seen += size
        chosen = number % self.stride == 0
        self.number = np.concatenate([self.number, number[chosen]])
        for name, rows in batch.items():
            before = self.rows.get(name, rows[:0])
            self.rows[name] = np.concatenate([before, rows[chosen]])
        while len(self.number) > self.most:
            self.stride *= 2
            stays = self.number % self.stride == 0
            self.number = self.number[stays]
            self.rows = {name: rows[stays] for name, rows in self.rows.items()}
