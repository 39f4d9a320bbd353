"""The convolutional block attention module: which channels, then which positions."""

import math
from typing import Any, Self, final

import torch
from torch import Tensor, nn

from stiffnet.attention.bottleneck import Narrowing


@final
class CBAM(Narrowing):
    r"""A gate per channel, then a gate per position of what that left.

    $$c = \sigma(M(\mathrm{mean}(f)) + M(\max(f))), \qquad
      p = \sigma(\mathrm{norm}(K * [\max_C(c f), \mathrm{mean}_C(c f)]))$$

    M is one bottleneck for both pooled vectors, K a 7×7 convolution. `describe` and `gate` are the
    first half; the second depends on the map. It starts at ½, because its norm starts at weight 0.
    Not timm's, which pools [mean, max], starts its norm at 1 and multiplies in the same call.

    Args:
        reduction: C over the bottleneck's narrow width.
        rounding: Of that width, ``"down"`` or ``"nearest"``; see `hidden_width`.
        bias: In the bottleneck, as in the authors' release; timm and the ASR paper have none.
    """

    summary = "two layers on mean and maximum, then 7×7 over the map"
    reference = "Woo et al., 2018"
    formula = "2C²/16 + C/16 + C + 100"
    spatial = True

    def __init__(
        self,
        channels: int,
        *,
        reduction: int = 16,
        rounding: str = "down",
        bias: bool = True,
        channel_axis: int = 1,
    ) -> None:
        super().__init__(
            channels, reduction=reduction, rounding=rounding, bias=bias, channel_axis=channel_axis
        )
        self.conv: Any = nn.Conv2d(2, 1, 7, padding=3, bias=False)
        self.norm: Any = nn.BatchNorm2d(1, momentum=0.01)
        for layer in (self.mlp.fc1, self.mlp.fc2):
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        nn.init.normal_(self.conv.weight, std=math.sqrt(2 / 49))
        nn.init.zeros_(self.norm.weight)

    @property
    def descriptor_shape(self) -> tuple[int, ...]:
        """Mean and maximum of every channel."""
        return (self.channels, 2)

    def describe(self, rate: Tensor, state: Tensor | None = None) -> Tensor:
        """Mean and maximum over positions."""
        positions = self.positions(rate)
        return torch.stack([rate.mean(positions), rate.amax(positions)], dim=-1)

    def excite(self, descriptor: Tensor) -> Tensor:
        """The channels' half: the bottleneck on both vectors, their sum, the activation."""
        return self.squash(self.mlp(descriptor.transpose(1, 2)).sum(1))

    def locate(self, gated: Tensor) -> Tensor:
        """The positions' half: (N, 1, H, W) from a rate that its channels' half has scaled."""
        maps = torch.cat([gated.amax(1, keepdim=True), gated.mean(1, keepdim=True)], dim=1)
        return torch.sigmoid(self.norm(self.conv(maps))).to(gated.dtype)

    def step_size(self, rate: Tensor, state: Tensor | None = None) -> Tensor:
        """Product of both halves, (N, C, H, W)."""
        channels = self._channels(rate)
        if self.conv is None:
            return channels
        else:  # noqa: RET505  # TorchScript reads what follows a branch, whatever the branch is
            return channels * self.locate(rate * channels)

    def forward(self, rate: Tensor, state: Tensor | None = None) -> Tensor:
        """Scale the rate by one half, then by the other."""
        gated = rate * self._channels(rate)
        if self.conv is None:
            return gated
        else:  # noqa: RET505  # as above
            return gated * self.locate(gated)

    def _channels(self, rate: Tensor) -> Tensor:
        self.check(rate, None)
        return self.spread(self.gate(self.describe(rate)), rate)

    def for_constant(self) -> Self:
        """Leave the channels' half: the other looks at the map."""
        self.conv = self.norm = None
        return self

    def settle(self) -> float:
        """Silence the bottleneck's second layer; the norm silences the convolution already."""
        self.mlp.silence()
        nn.init.zeros_(self.norm.weight)
        nn.init.zeros_(self.norm.bias)
        return 0.5 * 0.5
