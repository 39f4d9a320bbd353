"""StepNet's adaptor, and four others to compare it with.

An adaptor turns k pooled vectors, of shape (N, C, k), into the (N, C) numbers that the sigmoid
gets. The paper draws four alternatives (its Figure 5) and describes none of them, so that those
below are ours and not the paper's.
"""

import math
from abc import ABC, abstractmethod
from typing import final

import torch
from torch import Tensor, nn

from stiffnet.attention.bottleneck import Bottleneck, hidden_width
from stiffnet.attention.ie import InstanceAffine


class Adaptor(nn.Module, ABC):
    """Maps pooled vectors to what a sigmoid turns into step sizes."""

    @abstractmethod
    def settle(self) -> float:
        """Make the output one number for every input, and return it."""


def channel_weights(channels: int, vectors: int) -> nn.Parameter:
    """Weights of a 1×1 convolution with one group per channel, as torch initialises them."""
    bound = 1 / math.sqrt(vectors)
    return nn.Parameter(torch.empty(channels, vectors).uniform_(-bound, bound))


class _Weighed(Adaptor):
    """Vectors weighed channel by channel, batch norm, their sum, IE."""

    def __init__(self, channels: int, weight: nn.Parameter, norms: int = 1) -> None:
        super().__init__()
        self.weight = weight
        self.norm = nn.BatchNorm1d(channels * norms)
        self.affine = InstanceAffine(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Weigh, normalise the sum, scale and shift."""
        return self.affine(self.norm((x * self.weight).sum(-1)))  # type: ignore[no-any-return]

    def settle(self) -> float:
        """IE's published start does not look at its input."""
        return self.affine.settle()


@final
class Paper(_Weighed):
    """Each channel's vectors weighed and summed, batch norm, IE: 6C parameters for two vectors."""

    def __init__(self, channels: int, vectors: int) -> None:
        super().__init__(channels, channel_weights(channels, vectors))


@final
class Separate(_Weighed):
    """Ours: each vector weighed and normalised by itself, then summed, then IE."""

    def __init__(self, channels: int, vectors: int) -> None:
        weight = nn.Parameter(torch.empty(channels, vectors).uniform_(-1, 1))
        super().__init__(channels, weight, norms=vectors)

    def forward(self, x: Tensor) -> Tensor:
        """Weigh and normalise each, sum, scale and shift."""
        each = self.norm((x * self.weight).flatten(1)).unflatten(1, self.weight.shape)
        return self.affine(each.sum(-1))  # type: ignore[no-any-return]


@final
class Shared(_Weighed):
    """Ours: one weight per channel for all vectors, so that only their sum counts."""

    def __init__(self, channels: int, vectors: int) -> None:
        super().__init__(channels, channel_weights(channels, 1))


@final
class Narrow(Adaptor):
    """Ours: SE's bottleneck on all vectors, one after the other."""

    def __init__(self, channels: int, vectors: int) -> None:
        super().__init__()
        self.mlp = Bottleneck(vectors * channels, hidden_width(channels, 16), channels)

    def forward(self, x: Tensor) -> Tensor:
        """Two layers."""
        return self.mlp(x.transpose(1, 2).flatten(1))  # type: ignore[no-any-return]

    def settle(self) -> float:
        """Silence the second layer."""
        self.mlp.silence()
        return 0.0


@final
class Bare(Adaptor):
    """Ours: the paper's without IE."""

    def __init__(self, channels: int, vectors: int) -> None:
        super().__init__()
        self.weight = channel_weights(channels, vectors)
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Weigh and normalise."""
        return self.norm((x * self.weight).sum(-1))  # type: ignore[no-any-return]

    def settle(self) -> float:
        """Silence the norm's weight."""
        nn.init.zeros_(self.norm.weight)
        nn.init.zeros_(self.norm.bias)
        return 0.0


_KINDS: tuple[type[Adaptor], ...] = (Paper, Separate, Shared, Narrow, Bare)
ADAPTORS = {kind.__name__.lower(): kind for kind in _KINDS}
