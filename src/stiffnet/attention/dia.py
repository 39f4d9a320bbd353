"""Dense-and-implicit attention: one recurrent cell goes along with the steps of a stage."""

from typing import Any, Self, final

import torch
from torch import Tensor, nn

from stiffnet.attention.base import Pooling, tracer_of
from stiffnet.attention.bottleneck import Bottleneck, hidden_width
from stiffnet.errors import StepError


class Cell(nn.Module):
    r"""The authors' LSTM: narrow layers in its gates, and a sigmoid where others have tanh.

    $$i, f, g, o = P(y) + Q(h), \quad c' = \sigma(f) c + \sigma(i) \tanh(g), \quad
      h' = \sigma(o)\,\sigma(c')$$

    The last step, where another activation may stand for the sigmoid of c', is the module's.
    """

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.from_rate = Bottleneck(channels, hidden, 4 * channels)
        self.from_memory = Bottleneck(channels, hidden, 4 * channels)

    def forward(self, y: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Go one step further: how far it opens, and its new content."""
        i, f, g, o = (self.from_rate(y) + self.from_memory(h)).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o), c


class Memory:
    """What one step hands to the next, during a forward pass and no longer."""

    def __init__(self) -> None:
        self.held: tuple[Tensor, Tensor] | None = None


@final
class DIA(Pooling):
    """An LSTM over the steps of a stage, whose output is the step size.

    It reads the mean rate of each step in turn. `for_stage` makes the modules of one stage around
    one cell: the first starts from zeros, the last forgets, so that nothing is kept between passes
    or between stages. Made by itself, a module is a stage of one step. The steps of a stage must
    run in order, in one thread, and be checkpointed together if at all: a step that finds nothing
    from the step before it refuses to run.

    Args:
        reduction: C over the narrow width in the cell's gates; 4 for CIFAR, 20 for ImageNet.
        rounding: Of that width, ``"down"`` or ``"nearest"``; see `hidden_width`.
    """

    summary = "one LSTM along the steps of a stage"
    reference = "Huang et al., 2020"
    formula = "2.5C² + 8.5C a stage"
    shares_cell = True
    squashes = True

    def __init__(
        self, channels: int, *, reduction: int = 4, rounding: str = "down", channel_axis: int = 1
    ) -> None:
        super().__init__(channels, channel_axis=channel_axis)
        self.cell = Cell(channels, hidden_width(channels, reduction, rounding))
        self.memory = Memory()
        self.number, self.steps = 1, 1

    @classmethod
    def for_stage(cls, channels: int, steps: int, **options: Any) -> list[Self]:
        """Make the modules of one stage: they share the cell and hand its memory on."""
        stage: list[DIA] = [cls(channels, **options) for _ in range(steps)]
        for number, module in enumerate(stage, start=1):
            module.cell, module.memory = stage[0].cell, stage[0].memory
            module.number, module.steps = number, steps
        return stage

    def excite(self, descriptor: Tensor) -> Tensor:
        """Let the cell go on from where the step before left it."""
        before, content = self._before(descriptor)
        opened, content = self.cell(descriptor, before, content)
        output: Tensor = opened * self.squash(content)
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            self.memory.held = None if self.number == self.steps else (output, content)
        return output

    def _before(self, descriptor: Tensor) -> tuple[Tensor, Tensor]:
        """What the cell goes on from: zeros in the first step."""
        if not torch.jit.is_scripting() and self.number > 1:  # type: ignore[attr-defined]
            return self._handed_on(descriptor)
        nothing = torch.zeros_like(descriptor)
        return nothing, nothing

    def _handed_on(self, descriptor: Tensor) -> tuple[Tensor, Tensor]:
        held = self.memory.held
        if held is None or tracer_of(held[0]) is not tracer_of(descriptor):
            raise StepError(
                f"Step {self.number} of {self.steps} of a DIA stage ran without the step before "
                "it; run the whole stage, in order, or give this step a DIA of its own. Gradient "
                "checkpointing, which runs single blocks again, does this: turn it off, or "
                "checkpoint a whole stage at once."
            )
        return held

    def __prepare_scriptable__(self) -> Self:
        """Refuse to be scripted with other steps: modules of a script share no memory."""
        if self.steps > 1:
            raise StepError(
                f"The {self.steps} steps of a DIA stage share a memory, which `torch.jit.script` "
                "cannot express; use `torch.export`, or script what `torch.fx` traced of the "
                "whole network."
            )
        return self

    def settle(self) -> float:
        """Silence what goes into the cell's gates: then i = f = o = ½ and g = 0 at every step."""
        self.cell.from_rate.silence()
        self.cell.from_memory.silence()
        return 0.5 * 0.5

    def extra_repr(self) -> str:
        """Show the place in the stage."""
        return f"{super().extra_repr()}, step {self.number} of {self.steps}"
