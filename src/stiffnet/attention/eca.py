"""Efficient channel attention."""

import math
from typing import final

from torch import Tensor, nn

from stiffnet.attention.base import Pooling
from stiffnet.attention.bottleneck import silence
from stiffnet.errors import StepError


def kernel_size(channels: int) -> int:
    """Odd width of the convolution over channels: near (log₂ C + 1) / 2.

    >>> [kernel_size(channels) for channels in (64, 128, 256, 2048)]
    [3, 5, 5, 7]
    """
    near = int((math.log2(channels) + 1) / 2)
    return near if near % 2 else near + 1


@final
class ECA(Pooling):
    r"""One short convolution along the channels' means.

    $$s = \sigma(w * y), \qquad y = \mathrm{mean}(f)$$

    One kernel for all, and zeros beyond the first and the last channel. Not timm's, whose numbers
    agree from 8 channels up (below, it keeps a kernel of 3), but which multiplies in the same call.

    Args:
        kernel: Odd length of the convolution; None follows the paper's rule, `kernel_size`. The
            authors' released models set it by hand: 3, 5, 5, 7 in the stages of a ResNet-50.
    """

    summary = "a short convolution along the pooled channels"
    reference = "Wang et al., 2020"
    formula = "k, the odd number near (log₂C + 1)/2"
    squashes = True

    def __init__(self, channels: int, *, kernel: int | None = None, channel_axis: int = 1) -> None:
        super().__init__(channels, channel_axis=channel_axis)
        self.conv = neighbours(channels, kernel)

    def excite(self, descriptor: Tensor) -> Tensor:
        """Convolution along the channels, then the activation."""
        return self.squash(self.conv(descriptor.unsqueeze(1)).squeeze(1))

    def settle(self) -> float:
        """Silence the convolution."""
        silence(self.conv)
        return 0.5


def neighbours(channels: int, kernel: int | None = None) -> nn.Conv1d:
    """Make the convolution over neighbouring channels."""
    length = kernel_size(channels) if kernel is None else kernel
    if length < 1 or length % 2 == 0:
        raise StepError(f"`kernel` was {length}; give an odd number, so that it has a middle.")
    return nn.Conv1d(1, 1, length, padding=length // 2, bias=False)
