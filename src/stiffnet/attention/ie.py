"""Instance enhancement: the pooled rate, scaled and shifted."""

from typing import final

import torch
from torch import Tensor, nn

from stiffnet.attention.base import Pooling, sigmoid

FIRST_SHIFT = -1.0  # the published start: weight 0, shift -1, so that a gate begins at 0.269


class InstanceAffine(nn.Module):
    """W ⊗ x + b over the last axis, a weight and a shift per channel, from W = 0 and b = -1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels))
        self.bias = nn.Parameter(torch.full((channels,), FIRST_SHIFT))

    def forward(self, x: Tensor) -> Tensor:
        """Scale and shift."""
        return torch.addcmul(self.bias, x, self.weight)

    def settle(self) -> float:
        """Go back to the published start, and return the output that it has for every input."""
        nn.init.zeros_(self.weight)
        nn.init.constant_(self.bias, FIRST_SHIFT)
        return FIRST_SHIFT


@final
class IE(Pooling):
    r"""A weight and a shift on the mean rate of every channel.

    $$s = \sigma(w ⊗ \mathrm{mean}(f) + b)$$

    From w = 0 and b = -1, so that the gate starts at 0.269. This is the gate of `IEBN` put behind
    the norm, where it scales weight and shift of the norm alike.
    """

    summary = "a weight and a shift on the pooled rate"
    reference = "Liang et al., 2020"
    formula = "2C"
    squashes = True

    def __init__(self, channels: int, *, channel_axis: int = 1) -> None:
        super().__init__(channels, channel_axis=channel_axis)
        self.affine = InstanceAffine(channels)

    def excite(self, descriptor: Tensor) -> Tensor:
        """Scale, shift, squash."""
        return self.squash(self.affine(descriptor))

    def settle(self) -> float:
        """The published start does not look at the input."""
        return sigmoid(self.affine.settle())
