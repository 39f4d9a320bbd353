"""Squeeze and excitation."""

from typing import final

from torch import Tensor

from stiffnet.attention.base import Attention
from stiffnet.attention.bottleneck import Bottleneck, bottleneck_count, hidden_width


@final
class SE(Attention):
    r"""A bottleneck on the mean rate of every channel.

    $$s = \sigma(W_2\,\mathrm{relu}(W_1 y + b_1) + b_2), \qquad y = \mathrm{mean}(f)$$

    Not timm's: that rounds the narrow width up to a multiple of 8 (8 instead of 4 for 64 channels),
    and multiplies in the same call, so that its gate could not be fed a constant.

    Args:
        channels: Width of the rate.
        reduction: C over the narrow width.
        rounding: Of that width, ``"down"`` or ``"nearest"``; see `hidden_width`.
        bias: As in the authors' release; without, as in several re-implementations.
        channel_axis: 1 for images, -1 for tokens.
    """

    summary = "two layers on the pooled rate"
    reference = "Hu, Shen and Sun, 2018"
    formula = "2C²/16 + C/16 + C"
    squashes = True
    pools_tokens = True

    def __init__(
        self,
        channels: int,
        *,
        reduction: int = 16,
        rounding: str = "down",
        bias: bool = True,
        channel_axis: int = 1,
    ) -> None:
        super().__init__(channels, channel_axis=channel_axis)
        self.mlp = Bottleneck(
            channels, hidden_width(channels, reduction, rounding), channels, bias=bias
        )

    @staticmethod
    def parameter_count(
        channels: int, *, reduction: int = 16, rounding: str = "down", bias: bool = True
    ) -> int:
        """2Cr' + r' + C with r' = C / reduction; without biases 2Cr'.

        >>> SE.parameter_count(64)
        580
        """
        return bottleneck_count(
            channels, hidden_width(channels, reduction, rounding), channels, bias=bias
        )

    def describe(self, rate: Tensor, state: Tensor | None = None) -> Tensor:
        """Mean over positions."""
        return self.pooled(rate)

    def excite(self, descriptor: Tensor) -> Tensor:
        """Two layers, then the activation."""
        return self.squash(self.mlp(descriptor))

    def settle(self) -> float:
        """Silence the second layer."""
        self.mlp.silence()
        return 0.5
