"""What the reference's code calls at every step: it notes the step, and calls the gates on it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Noted:
    """One step that the reference took."""

    path: str
    """Of the module whose code adds."""
    number: int
    """Which expression of that code."""
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

    def know(self, network: nn.Module) -> None:
        """Learn where the modules of a network are."""
        self._paths = {module: path for path, module in network.named_modules()}

    def before(self, rate: Tensor) -> None:
        """Note what the block's own gates are about to scale."""
        if self._noted is not None:
            self._before = self._norms(rate)

    def __call__(
        self,
        block: nn.Module,
        number: int,
        state: Tensor,
        rate: Tensor,
        scale: float = 1.0,
        addition: bool = True,
    ) -> Tensor:
        """Give what is added to the state: the rate, through the gates that are on this step."""
        path = self._paths[block]
        gated = rate
        for gate in self.gates.get((path, number), ()):
            gated = gate(gated, state) if getattr(gate, "needs_state", False) else gate(gated)
        if self._noted is not None:
            shape = tuple(n for i, n in enumerate(state.shape) if i != self._axis)
            before, self._before = self._before, None
            self._noted.append(
                Noted(
                    path, number, shape, addition, self._norms(state),
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
