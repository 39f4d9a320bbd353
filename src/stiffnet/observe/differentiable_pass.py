"""One forward pass with its graph: where every step begins, and what it adds to what."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from stiffnet.errors import StepError
from stiffnet.nested import tensors_in
from stiffnet.trajectory.recorder import Place, Recorder
from stiffnet.trajectory.steps import Site, Step


@dataclass
class Added:
    """The operands of one step's addition, and its sum; each a value of its own in the graph."""

    shortcut: Tensor
    increment: Tensor
    rate: Tensor
    sum: Tensor
    edge: GradientEdge | None
    """Where in the graph the sum is, before anything is done to it in place."""


class Pass(Recorder):
    """Takes the operands and sums of all steps in one forward pass of a network in evaluation mode.

    Steps of opaque blocks are refused. `change`, if any, is added to what goes into the module at
    `entry`.
    """

    def __init__(
        self, model: nn.Module, steps: Sequence[Step], entry: str, change: Tensor | None
    ) -> None:
        super().__init__(model, steps)
        for step in steps:
            if step.state_at.kind == "block":
                raise StepError(
                    f"Step {step.name!r} is inside a block whose code cannot be followed, so its "
                    "Jacobian is not known. Choose a network whose blocks add in plain code."
                )
        self._change = change
        self._begins = model.get_submodule(entry)
        self._met: dict[Site, Tensor] = {}
        self._sums: dict[Place, tuple[Tensor, GradientEdge | None]] = {}
        self.entry: tuple[Tensor, GradientEdge | None] | None = None

    def __enter__(self) -> Self:
        super().__enter__()
        hook = self._begins.register_forward_pre_hook(self._begin, with_kwargs=True)
        self.watching.enter_context(hook)
        return self

    @property
    def begun(self) -> tuple[Tensor, GradientEdge | None]:
        """What went into the module at `entry`, which was given something."""
        assert self.entry is not None
        return self.entry

    @property
    def additions(self) -> list[Added]:
        """What every step added, in order."""
        found = []
        for step in self.steps:
            self.check(step, self._met)
            site = step.state_at
            value, edge = self._sums[Place(site.module, "add", site.number)]
            increment, rate = self._met[step.increment_at], self._met[step.rate_at]
            found.append(Added(self._met[site], increment, rate, value, edge))
        return found

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note what goes into the first step, and change it if asked to; once a pass."""
        if self.entry is not None:
            return None
        given = tensors_in((args, kwargs))
        first = next((value for value in given if value.is_floating_point()), None)
        if first is None:
            return None
        with torch._C.DisableTorchFunction():  # this sum is none of the network's
            changed = first.clone() if self._change is None else first + self._change
        if torch.is_grad_enabled() and not changed.requires_grad:
            changed.requires_grad_()
        self.entry = changed.detach(), _edge(changed)
        return tuple(changed if value is first else value for value in args), {
            key: changed if value is first else value for key, value in kwargs.items()
        }

    def take(self, site: Site, value: Tensor, scale: float) -> None:
        """Keep an operand as it is now, whatever is done to it in place."""
        self._met[site] = value.clone() if scale == 1.0 else value * scale

    def made(self, place: Place, result: Tensor) -> None:
        """Keep the sum."""
        if place.kind == "add":
            self._sums[place] = result.detach().clone(), _edge(result)


def _edge(value: Tensor) -> GradientEdge | None:
    return get_gradient_edge(value) if value.requires_grad else None
