"""The switchable excitation module: three gates, and how much each of them counts."""

from typing import final

import torch
from torch import Tensor, nn

from stiffnet.attention.base import Pooling, sigmoid
from stiffnet.attention.bottleneck import Bottleneck, hidden_width, silence
from stiffnet.attention.eca import neighbours
from stiffnet.attention.ie import InstanceAffine


@final
class SEM(Pooling):
    r"""SE's, ECA's and IE's gates on one pooled vector, switched per sample and multiplied.

    $$s = \prod_{i=1}^{3} \sigma(v_i e_i(y)), \qquad v = \sigma(W y + b), \quad
      y = \mathrm{mean}(f)$$

    The product is what the authors' release computes, whatever is said of a weighted sum.

    Args:
        reduction: C over the narrow width of SE's part.
        rounding: Of that width, ``"down"`` or ``"nearest"``; see `hidden_width`.
    """

    summary = "product of SE's, ECA's and IE's gates, switched per sample"
    reference = "Zhong et al., 2022"
    formula = "2C²/16 + C/16 + 6C + 3 + k"
    squashes = True

    def __init__(
        self, channels: int, *, reduction: int = 16, rounding: str = "down", channel_axis: int = 1
    ) -> None:
        super().__init__(channels, channel_axis=channel_axis)
        self.switch = nn.Linear(channels, 3)
        self.mlp = Bottleneck(channels, hidden_width(channels, reduction, rounding), channels)
        self.conv = neighbours(channels)
        self.affine = InstanceAffine(channels)

    def excite(self, descriptor: Tensor) -> Tensor:
        """Three excitations, each weighed before its activation, and their product."""
        first, second, third = torch.sigmoid(self.switch(descriptor)).split(1, dim=-1)
        channels = self.conv(descriptor.unsqueeze(1)).squeeze(1)
        return (
            self.squash(first * self.mlp(descriptor))
            * self.squash(second * channels)
            * self.squash(third * self.affine(descriptor))
        )

    def settle(self) -> float:
        """Silence SE's second layer, ECA's convolution and the switch, which then says ½."""
        silence(self.switch)
        self.mlp.silence()
        silence(self.conv)
        return 0.5 * 0.5 * sigmoid(0.5 * self.affine.settle())
