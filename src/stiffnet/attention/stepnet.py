"""StepNet: the step size is read off the state and off where the step would lead."""

from typing import final

import torch
from torch import Tensor

from stiffnet.attention.adaptors import ADAPTORS
from stiffnet.attention.base import Attention, sigmoid
from stiffnet.registry import check_known

INPUTS = {"x_t": 1, "x_t+1": 1, "difference": 1, "both": 2}
"""What the adaptor may read (the paper's Table 4), and how many pooled vectors that is."""


@final
class StepNet(Attention):
    r"""An adaptor on the means of the state and of the coarse next state.

    $$s = \sigma(A(\mathrm{mean}(x_t), \mathrm{mean}(x_{t+1}))), \qquad x_{t+1} = x_t + f_t$$

    The adaptor weighs the two vectors channel by channel, normalises over the batch and ends in IE,
    from W = 0 and b = -1: six parameters per channel, and a first gate of 0.269. The authors
    released no code; this reading gives their parameter counts. In training the norm needs two
    samples or more.

    Args:
        input: ``"x_t"``, ``"x_t+1"``, ``"difference"`` (which is the rate), or ``"both"`` states.
        adaptor: ``"paper"``, or one of ours: ``"separate"``, ``"shared"``, ``"narrow"``,
            ``"bare"``; see `adaptors`. With one input the first three are the same.
    """

    summary = "weights on the pooled states before and after, batch norm, IE"
    reference = "Huang et al., 2023"
    formula = "6C"
    squashes = True
    pools_tokens = True
    needs_state = True

    def __init__(
        self,
        channels: int,
        *,
        input: str = "both",
        adaptor: str = "paper",
        channel_axis: int = 1,
    ) -> None:
        super().__init__(channels, channel_axis=channel_axis)
        check_known("input of StepNet", input, INPUTS)
        check_known("adaptor of StepNet", adaptor, ADAPTORS)
        self.input = input
        self.adaptor = ADAPTORS[adaptor](channels, INPUTS[input])

    @property
    def descriptor_shape(self) -> tuple[int, ...]:
        """As many pooled vectors as the adaptor reads."""
        return (self.channels, INPUTS[self.input])

    def describe(self, rate: Tensor, state: Tensor | None = None) -> Tensor:
        """Means over positions; that of the next state is the sum of the other two."""
        assert state is not None
        if self.input == "difference":
            vectors = [self.pooled(rate)]
        elif self.input == "x_t":
            vectors = [self.pooled(state)]
        else:
            now = self.pooled(state)
            coarse = now + self.pooled(rate)
            vectors = [coarse] if self.input == "x_t+1" else [now, coarse]
        return torch.stack(vectors, dim=-1)

    def excite(self, descriptor: Tensor) -> Tensor:
        """The adaptor, then the activation."""
        return self.squash(self.adaptor(descriptor))

    def settle(self) -> float:
        """As the adaptor settles."""
        return sigmoid(self.adaptor.settle())
