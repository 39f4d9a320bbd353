"""Two layers with a narrow one between them: the gate of half the modules here."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from stiffnet.attention.base import Attention
from stiffnet.errors import StepError
from stiffnet.registry import check_known


class Bottleneck(nn.Module):
    """Linear, ReLU, linear, over the last axis; initialised as torch's linear layers are."""

    def __init__(self, inputs: int, hidden: int, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden, bias=bias)
        self.fc2 = nn.Linear(hidden, outputs, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Apply both layers."""
        return self.fc2(torch.relu(self.fc1(x)))  # type: ignore[no-any-return]

    def silence(self) -> None:
        """Make the output zero for every input; the second layer still learns at once."""
        silence(self.fc2)


def silence(layer: nn.Linear | nn.Conv1d) -> None:
    """Set a layer's weight, and its bias if it has one, to zero."""
    nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


ROUNDINGS = ("down", "nearest")


def hidden_width(channels: int, reduction: int, rounding: str = "down") -> int:
    """Width between the two layers: C / r, rounded to a whole number of at least 1.

    Rounded ``"down"``, as most authors do, or to the ``"nearest"``, as the ASR authors do with
    Python's `round`, which takes the even one of two that are equally near.

    >>> hidden_width(64, 16), hidden_width(8, 16)
    (4, 1)
    >>> [(hidden_width(c, 16), hidden_width(c, 16, "nearest")) for c in (24, 40, 120, 184)]
    [(1, 2), (2, 2), (7, 8), (11, 12)]
    """
    check_known("rounding", rounding, ROUNDINGS)
    if reduction < 1:
        raise StepError(
            f"`reduction` was {reduction}; the width is divided by it, so give 1 or more."
        )
    return max(1, channels // reduction if rounding == "down" else round(channels / reduction))


class Narrowing(Attention):
    """Ends in a bottleneck, `mlp`, on its descriptor."""

    squashes = True
    inputs: ClassVar[int] = 1  # of the bottleneck, for each channel

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
        hidden = hidden_width(channels, reduction, rounding)
        self.mlp = Bottleneck(self.inputs * channels, hidden, channels, bias=bias)

    def excite(self, descriptor: Tensor) -> Tensor:
        """Two layers, then the activation."""
        return self.squash(self.mlp(descriptor.flatten(1)))

    def settle(self) -> float:
        """Silence the second layer."""
        self.mlp.silence()
        return 0.5
