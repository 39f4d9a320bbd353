"""Spatial pyramid attention, in its first form: 21 numbers a channel."""

from typing import Final, final

import torch
from torch import Tensor
from torch.nn import functional as F

from stiffnet.attention.bottleneck import Narrowing

SIDES = (1, 2, 4)
CELLS = sum(side * side for side in SIDES)


@final
class SPA(Narrowing):
    r"""A bottleneck on every channel's means over the map, its quarters and its sixteenths.

    $$s = \sigma(W_2\,\mathrm{relu}(W_1 y)), \qquad y \in R^{21C}$$

    The conference form, with one step size per channel, which the ASR paper counts; the journal's
    later one differs between positions. `W_1` reads all 21 numbers of a channel, then the next's;
    the authors' reads all channels' 1×1 means, then their 2×2, then their 4×4.

    Args:
        reduction: C over the narrow width.
        rounding: Of that width, ``"down"`` or ``"nearest"``; see `hidden_width`.
    """

    summary = "two layers on 1×1, 2×2 and 4×4 means"
    reference = "Guo et al., 2020"
    formula = "22C²/16"
    needs_map = True
    inputs = CELLS
    sides: Final[tuple[int, int, int]] = SIDES

    def __init__(
        self, channels: int, *, reduction: int = 16, rounding: str = "down", channel_axis: int = 1
    ) -> None:
        super().__init__(
            channels, reduction=reduction, rounding=rounding, bias=False, channel_axis=channel_axis
        )

    @property
    def descriptor_shape(self) -> tuple[int, ...]:
        """One mean over the map, four over its quarters, sixteen over its sixteenths."""
        return (self.channels, CELLS)

    def describe(self, rate: Tensor, state: Tensor | None = None) -> Tensor:
        """Means over the cells of three grids; the cells of a small map share positions."""
        whole = self.as_map(rate)
        grids = [F.adaptive_avg_pool2d(whole, side).flatten(2) for side in self.sides]
        return torch.cat(grids, dim=-1)
