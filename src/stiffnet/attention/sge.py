"""Spatial group-wise enhancement."""

from typing import Final, final

import torch
from torch import Tensor, nn

from stiffnet.attention.base import Attention, sigmoid
from stiffnet.attention.moments import centre
from stiffnet.errors import StepError


@final
class SGE(Attention):
    r"""In every group of channels, how much each position looks like the group's mean.

    $$t_p = \langle f_p, \mathrm{mean}(f) \rangle, \qquad
      s_p = \sigma(w\,(t_p - \bar{t}) / (\mathrm{std}(t) + 10^{-5}) + b)$$

    One w and one b per group, from 0 and 1, so that the gate starts at 0.731. The deviation is the
    unbiased one; over a single position it is 0.

    Args:
        channels: Width of the rate, a multiple of `groups`.
        groups: How many groups; 64 in all the authors' models.
    """

    summary = "likeness of each position to its group's mean"
    reference = "Li, Hu and Yang, 2019"
    formula = "128, two a group"
    spatial = True
    epsilon: Final[float] = 1e-5  # beside the deviation, as the authors have it

    def __init__(self, channels: int, *, groups: int = 64, channel_axis: int = 1) -> None:
        super().__init__(channels, channel_axis=channel_axis)
        if groups < 1 or channels % groups:
            largest = max(d for d in range(1, min(64, channels) + 1) if channels % d == 0)
            raise StepError(
                f"SGE cannot split {channels} channels into {groups} groups; multiples of "
                f"{max(groups, 1)} work, and this width takes `groups={largest}`."
            )
        self.groups = groups
        self.weight = nn.Parameter(torch.zeros(groups))
        self.bias = nn.Parameter(torch.ones(groups))

    @property
    def descriptor_shape(self) -> tuple[int, ...]:
        """None that a constant could have: the descriptor is a map."""
        raise StepError(
            "SGE's descriptor has the size of the map it was read off, so no constant stands "
            "for it; choose a module with one step size per channel, such as 'se'."
        )

    def describe(self, rate: Tensor, state: Tensor | None = None) -> Tensor:
        """Likeness to the group's mean, standardised over positions: (N, groups, H, W)."""
        grouped: Tensor = rate.unflatten(1, (self.groups, -1))
        likeness = (grouped * grouped.mean((3, 4), keepdim=True)).sum(2)
        _, distance, deviation = centre(likeness, [2, 3])
        return distance / (deviation + self.epsilon)

    def excite(self, descriptor: Tensor) -> Tensor:
        """Scale, shift, sigmoid: one gate a group and position."""
        return torch.sigmoid(
            torch.addcmul(self.bias[:, None, None], descriptor, self.weight[:, None, None])
        )

    def step_size(self, rate: Tensor, state: Tensor | None = None) -> Tensor:
        """One per group and position, repeated for every channel of the group."""
        self.check(rate, state)
        gate = self.gate(self.describe(rate)).to(rate.dtype)
        return gate.repeat_interleave(self.channels // self.groups, dim=1)

    def forward(self, rate: Tensor, state: Tensor | None = None) -> Tensor:
        """Scale every channel of a group by the group's gate."""
        self.check(rate, state)
        gate = self.gate(self.describe(rate)).to(rate.dtype)
        grouped: Tensor = rate.unflatten(1, (self.groups, -1))
        return (grouped * gate.unsqueeze(2)).flatten(1, 2)

    def settle(self) -> float:
        """The published start does not look at the input."""
        nn.init.zeros_(self.weight)
        nn.init.ones_(self.bias)
        return sigmoid(1.0)
