"""Sums of one pass over a data set: float64 losses, int64 counts, on the device of the network."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Outcome:
    """What a pass came to."""

    samples: int
    loss: float
    top1: float
    top5: float


class Tally:
    """Adds up losses and hits without waiting for the device."""

    def __init__(self, device: torch.device) -> None:
        exact = torch.float32 if device.type == "mps" else torch.float64  # Metal has no float64
        self.loss = torch.zeros((), dtype=exact, device=device)
        self.hits = torch.zeros(3, dtype=torch.int64, device=device)  # samples, top-1, top-5

    @torch.no_grad()
    def add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Add one batch: the sum of its losses, and how many labels the logits find."""
        ranked = logits.topk(min(5, logits.shape[1]), dim=1).indices == labels[:, None]
        self.loss += loss
        self.hits[0] += len(labels)
        self.hits[1] += ranked[:, 0].sum()
        self.hits[2] += ranked.sum()

    def outcome(self) -> Outcome:
        """Return the means so far."""
        samples, top1, top5 = self.hits.tolist()
        if not samples:
            return Outcome(0, float("nan"), float("nan"), float("nan"))
        return Outcome(samples, self.loss.item() / samples, top1 / samples, top5 / samples)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers that `from_dict` turns back into the same bits."""
        return {"loss": self.loss.item(), "hits": self.hits.tolist()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], device: torch.device) -> "Tally":
        """Undo `to_dict`."""
        tally = cls(device)
        tally.loss.fill_(content["loss"])
        tally.hits.copy_(torch.tensor(content["hits"], dtype=torch.int64))
        return tally
