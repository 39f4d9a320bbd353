"""Frequency channel attention: every channel is squeezed by a cosine of its own."""

import math
from typing import final

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from stiffnet.attention.bottleneck import Narrowing
from stiffnet.errors import StepError
from stiffnet.registry import check_known

GRID = 7
"""Frequencies are those of a line of 7; on a line of L they are multiplied by L // 7."""

COUNTS = (1, 2, 4, 8, 16, 32)
FREQUENCIES = {
    "top": ("00600114513000324635526553342261", "01052020060463526333511242113053"),
    "low": ("00110221203401301234501234561234", "01012012230043154321065432106543"),
    "bot": ("61332412445146256162243355625536", "64466314456522514350311242115333"),
}
"""Rows and columns of the frequencies, a digit each, best first by the authors' three rankings."""


@final
class FCA(Narrowing):
    r"""A bottleneck on one coefficient of every channel's discrete cosine transform.

    $$s = \sigma(W_2\,\mathrm{relu}(W_1 y)), \qquad
      y_c = \sum_{h,w} f_{c,h,w}\, B_h(u_c)\, B_w(v_c)$$

    with the orthonormal basis $B_p(k) = \sqrt{(1 + [k > 0]) / L}\, \cos(πk(p + ½)/L)$. Channels
    are cut into as many equal groups as there are frequencies (u, v): those of a 7×7 map, times
    H // 7 and W // 7. Frequency (0, 0) gives the sum over √(HW), not the mean. They are buffers, so
    that a checkpoint knows its own.

    Args:
        channels: Width of the rate, a multiple of the number of frequencies.
        frequencies: ``top``, ``low`` or ``bot``, and 1, 2, 4, 8, 16 or 32 of them: ``"top16"``.
        reduction: C over the narrow width.
        rounding: Of that width, ``"down"`` or ``"nearest"``; see `hidden_width`.
        bias: The authors have none; with biases the counts are those of the StepNet paper.
        size: Side to which every map is pooled first, as the authors do with sizes that they did
            not train on. None takes each map as it is, and repeats those smaller than 7 up to 7.
    """

    summary = "two layers on one cosine coefficient a channel"
    reference = "Qin et al., 2021"
    formula = "2C²/16"
    needs_map = True
    rows: Tensor
    columns: Tensor

    def __init__(
        self,
        channels: int,
        *,
        frequencies: str = "top16",
        reduction: int = 16,
        rounding: str = "down",
        bias: bool = False,
        size: int | None = None,
        channel_axis: int = 1,
    ) -> None:
        super().__init__(
            channels, reduction=reduction, rounding=rounding, bias=bias, channel_axis=channel_axis
        )
        rows, columns = chosen(frequencies)
        if channels % len(rows):
            fitting = max(number for number in COUNTS if channels % number == 0)
            raise StepError(
                f"FCA cannot split {channels} channels between {len(rows)} frequencies; multiples "
                f"of {len(rows)} work, and this width takes "
                f"`frequencies='{frequencies[:3]}{fitting}'`."
            )
        if size is not None and size < GRID:
            raise StepError(f"FCA was given maps of side {size}; `size` must be {GRID} or more.")
        self.size = size
        self.register_buffer("rows", torch.tensor(rows))
        self.register_buffer("columns", torch.tensor(columns))

    def describe(self, rate: Tensor, state: Tensor | None = None) -> Tensor:
        """One coefficient per channel."""
        return coefficients(self.as_map(rate), self.rows, self.columns, self.size)


def chosen(frequencies: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Rows and columns of the frequencies that a name stands for.

    >>> chosen("low4")
    ((0, 0, 1, 1), (0, 1, 0, 1))
    """
    table = {
        f"{ranking}{count}": (tuple(map(int, rows[:count])), tuple(map(int, columns[:count])))
        for ranking, (rows, columns) in FREQUENCIES.items()
        for count in COUNTS
    }
    check_known("choice of frequencies", frequencies, table)
    return table[frequencies]


def coefficients(
    maps: Tensor, rows: Tensor, columns: Tensor, size: int | None, grid: int = GRID
) -> Tensor:
    """One cosine coefficient of every channel, (N, C): a leaf of a trace."""
    height, width = maps.shape[2], maps.shape[3]
    tall = max(height, grid) if size is None else size
    wide = max(width, grid) if size is None else size
    if tall != height or wide != width:
        maps = F.adaptive_avg_pool2d(maps, (tall, wide))
    dtype = torch.promote_types(maps.dtype, torch.float32)
    down, across = cosines(rows, tall, dtype), cosines(columns, wide, dtype)
    basis = (down.unsqueeze(2) * across.unsqueeze(1)).to(maps.dtype)
    grouped: Tensor = maps.unflatten(1, (rows.shape[0], -1)).flatten(3)
    return (grouped @ basis.flatten(1).unsqueeze(2)).flatten(1)


fx.wrap("coefficients")


def cosines(frequencies: Tensor, length: int, dtype: torch.dtype, grid: int = GRID) -> Tensor:
    """Orthonormal cosines of a line of `length`, one row per frequency on the grid of seven."""
    places = torch.arange(length, device=frequencies.device, dtype=dtype) + 0.5
    fine = (frequencies * (length // grid)).to(dtype).unsqueeze(1)
    scale = ((1 + fine.sign()) / length).sqrt()
    return scale * torch.cos(fine * places * (math.pi / length))
