"""What the reference's code calls at every step: it notes the step, and calls the gates on it."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Noted:
    """One step that the reference took."""

    path: str
    """Of the module whose code adds."""
    turn: int
    """Which step it is of one call of that module: a loop takes several."""
    shape: tuple[int, ...]
    """Of one sample's state."""
    addition: bool
    """It is written as the addition of two values."""
    state: Tensor
    rate: Tensor
    increment: Tensor
    """Norms, one a sample."""


class Probe:
    """Stands for ``AT`` in the source of a reference network."""

    def __init__(self, batch_axis: int) -> None:
        self.gates: dict[tuple[str, int], Sequence[nn.Module]] = {}
        self._axis = batch_axis
        self._paths: dict[nn.Module, str] = {}
        self._noted: list[Noted] | None = None
        self._before: Tensor | None = None
        self._turns: Counter[str] = Counter()
        self._of: dict[str, int] = {}
        self.taken: Callable[[Tensor, Tensor], object] | None = None
        """Told of the state and the increment of every step, if there is something."""

    def know(self, network: nn.Module) -> None:
        """Learn where the modules of a network are, and count their steps call by call."""
        self._paths = {module: path for path, module in network.named_modules()}
        for module in network.modules():
            module._forward_pre_hooks.clear()
            module.register_forward_pre_hook(self._enter)

    def count(self, taken: Sequence[Noted]) -> None:
        """Learn how many steps a call takes, for code that a checkpoint runs again."""
        for step in taken:
            self._of[step.path] = max(self._of.get(step.path, 0), step.turn + 1)

    def _enter(self, module: nn.Module, args: object) -> None:
        self._turns[self._paths[module]] = 0

    def before(self, rate: Tensor) -> None:
        """Note what the block's own gates are about to scale."""
        if self._noted is not None:
            self._before = self._norms(rate)

    def __call__(
        self,
        block: nn.Module,
        state: Tensor,
        rate: Tensor,
        scale: float = 1.0,
        addition: bool = True,
    ) -> Tensor:
        """Give what is added to the state: the rate, through the gates that are on this step."""
        path = self._paths[block]
        turn = self._turns[path] % self._of.get(path, 1 << 30)
        self._turns[path] += 1
        gated = rate
        for gate in self.gates.get((path, turn), ()):
            gated = gate(gated, state) if getattr(gate, "needs_state", False) else gate(gated)
        if self.taken is not None:
            self.taken(state, gated * scale)
        if self._noted is not None:
            shape = tuple(n for i, n in enumerate(state.shape) if i != self._axis)
            before, self._before = self._before, None
            self._noted.append(
                Noted(
                    path, turn, shape, addition, self._norms(state),
                    self._norms(rate) if before is None else before, self._norms(gated) * scale,
                )
            )  # fmt: skip
        return gated

    @contextmanager
    def noting(self) -> Iterator[list[Noted]]:
        """Note every step that is taken inside."""
        self._noted, self._before = [], None
        try:
            yield self._noted
        finally:
            self._noted = None

    def _norms(self, value: Tensor) -> Tensor:
        each = value.detach().double().movedim(self._axis, 0).flatten(1)
        return torch.stack([row.square().sum().sqrt() for row in each])


def noted(twin: nn.Module, probe: Probe, x: Tensor) -> list[Noted]:
    """The steps that a reference takes on a batch, in evaluation."""
    twin.eval()
    with torch.no_grad(), probe.noting() as found:
        torch.manual_seed(1)
        twin(x)
    return found
