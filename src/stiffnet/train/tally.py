"""Sums of one pass over a data set: float64 and int64, on the device of the network."""

import copy
from collections.abc import Mapping

import torch
from lightning_fabric import Fabric
from torch import Tensor

from stiffnet.train.tasks.base import Judged, Task


class Tally:
    """Adds up what a task judges, without waiting for the device."""

    def __init__(self, task: Task, device: torch.device) -> None:
        exact = torch.float32 if device.type == "mps" else torch.float64  # Metal has no float64
        self._names = ("samples", *task.counts), ("loss", *task.sums)
        self._counts = torch.zeros(len(self._names[0]), dtype=torch.int64, device=device)
        self._sums = torch.zeros(len(self._names[1]), dtype=exact, device=device)

    @property
    def loss(self) -> Tensor:
        """The sum of the losses so far, on the device."""
        return self._sums[0]

    @torch.no_grad()
    def add(self, judged: Judged) -> None:
        """Add one batch."""
        counts, sums = self._names
        assert {*counts, *sums} == {"samples", "loss", *judged.more}, "what the task declares"
        self._counts[0] += judged.samples
        self._sums[0] += judged.loss.detach()
        for names, kept in ((counts, self._counts), (sums, self._sums)):
            for place, name in enumerate(names[1:], start=1):
                kept[place] += judged.more[name]

    def over_ranks(self, fabric: Fabric) -> "Tally":
        """Return the sum of all ranks' tallies; each keeps its own."""
        total = copy.deepcopy(self)
        if fabric.world_size > 1:
            total._counts = fabric.all_reduce(total._counts, reduce_op="sum")
            total._sums = fabric.all_reduce(total._sums, reduce_op="sum")
        return total

    def to_dict(self) -> dict[str, int | float]:
        """Return plain numbers that `fill` turns back into the same bits."""
        counts, sums = self._names
        return {
            **dict(zip(counts, self._counts.tolist(), strict=True)),
            **dict(zip(sums, self._sums.tolist(), strict=True)),
        }

    def fill(self, content: Mapping[str, int | float]) -> "Tally":
        """Undo `to_dict`."""
        for names, kept in zip(self._names, (self._counts, self._sums), strict=True):
            kept.copy_(torch.tensor([content[name] for name in names], dtype=kept.dtype))
        return self
