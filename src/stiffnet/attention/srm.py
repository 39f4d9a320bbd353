"""The style-based recalibration module."""

from typing import Final, final

import torch
from torch import Tensor, nn

from stiffnet.attention.base import Attention
from stiffnet.attention.moments import centre


@final
class SRM(Attention):
    r"""Mean and deviation of every channel, weighted channel by channel and normalised.

    $$s = \sigma(\mathrm{norm}(w_1 ⊗ \mathrm{mean}(f) + w_2 ⊗ \mathrm{std}(f)))$$

    The deviation is the unbiased one, √(variance + 1e-5); over a single position the variance is
    0. The weights start at 0, so the gate starts at ½, and none of the parameters decays. The norm
    is over the batch: in training it needs two samples or more.
    """

    summary = "mean and deviation, two weights a channel, batch norm"
    reference = "Lee, Kim and Nam, 2019"
    formula = "4C"
    squashes = True
    epsilon: Final[float] = 1e-5  # inside the square root, as the authors have it

    def __init__(self, channels: int, *, channel_axis: int = 1) -> None:
        super().__init__(channels, channel_axis=channel_axis)
        self.weight = nn.Parameter(torch.zeros(channels, 2))
        self.norm = nn.BatchNorm1d(channels)

    @property
    def descriptor_shape(self) -> tuple[int, ...]:
        """Mean and deviation of every channel."""
        return (self.channels, 2)

    def describe(self, rate: Tensor, state: Tensor | None = None) -> Tensor:
        """Mean and deviation over positions."""
        mean, _, deviation = centre(rate, self.positions(rate))
        regular = torch.sqrt(deviation.square() + self.epsilon)
        return torch.stack([mean.flatten(1), regular.flatten(1)], dim=-1)

    def excite(self, descriptor: Tensor) -> Tensor:
        """Weigh, normalise over the batch, then the activation."""
        return self.squash(self.norm((descriptor * self.weight).sum(-1)))

    def settle(self) -> float:
        """Zero the weights, as they are from the start, and the norm's shift."""
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.norm.bias)
        return 0.5

    def no_weight_decay(self) -> set[str]:
        """All of them, as in the authors' release."""
        return {name for name, _ in self.named_parameters()}
