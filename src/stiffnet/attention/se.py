"""Squeeze and excitation."""

from typing import final

from stiffnet.attention.base import Pooling
from stiffnet.attention.bottleneck import Narrowing


@final
class SE(Narrowing, Pooling):
    r"""A bottleneck on the mean rate of every channel.

    $$s = \sigma(W_2\,\mathrm{relu}(W_1 y + b_1) + b_2), \qquad y = \mathrm{mean}(f)$$

    Not timm's: that rounds the narrow width up to a multiple of 8 (8 instead of 4 for 64 channels),
    and multiplies in the same call, so that its gate could not be fed a constant.

    Args:
        reduction: C over the narrow width.
        rounding: Of that width, ``"down"`` or ``"nearest"``; see `hidden_width`.
        bias: As in the authors' release; without, as in several re-implementations.
    """

    summary = "two layers on the pooled rate"
    reference = "Hu, Shen and Sun, 2018"
    formula = "2C²/16 + C/16 + C"
