"""One forward pass with its graph: where every step begins, and what it adds to what."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from stiffnet.errors import StepError
from stiffnet.trajectory.functions import name_of
from stiffnet.trajectory.graph import KINDS, ModuleStack, operands_of, tensors_in
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


class Pass(ModuleStack):
    """Takes the operands and sums of all steps in one forward pass.

    Args:
        model: The network, in evaluation mode.
        steps: Its steps; those of opaque blocks are refused.
        change: Added to what goes into the first step's module, if given.
    """

    def __init__(
        self, model: nn.Module, steps: Sequence[Step], change: Tensor | None = None
    ) -> None:
        super().__init__(model)
        for step in steps:
            if step.state_at.kind == "block":
                raise StepError(
                    f"Step {step.name!r} is inside a block whose code cannot be followed, so its "
                    "Jacobian is not known. Choose a network whose blocks add in plain code."
                )
        self._steps, self._change = tuple(steps), change
        self._first = steps[0].module
        self._paths: list[str] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self._sites: dict[tuple[str, str, int], list[Site]] = {}
        for step in steps:
            for site in (step.state_at, step.increment_at, step.rate_at):
                self._sites.setdefault((site.module, site.kind, site.number), []).append(site)
        self._met: dict[Site, Tensor] = {}
        self._sums: dict[tuple[str, int], tuple[Tensor, GradientEdge | None]] = {}
        self._functions = _Follow(self)
        self.entry: tuple[Tensor, GradientEdge | None] | None = None

    def __enter__(self) -> Self:
        super().__enter__()
        self._handle = self.model.get_submodule(self._first).register_forward_pre_hook(
            self._begin, with_kwargs=True
        )
        self._functions.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._functions.__exit__(*error)
        self._handle.remove()
        super().__exit__(*error)

    @property
    def additions(self) -> list[Added]:
        """What every step added, in order."""
        found = []
        for step in self._steps:
            operands = [self._met.get(s) for s in (step.state_at, step.increment_at, step.rate_at)]
            shortcut, increment, rate = operands
            if shortcut is None or increment is None or rate is None:
                raise StepError(
                    f"Step {step.name!r} did not run as it did when it was found. Find the steps "
                    "again with `stiffnet.steps` on such a batch."
                )
            value, edge = self._sums[step.state_at.module, step.state_at.number]
            found.append(Added(shortcut, increment, rate, value, edge))
        return found

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note what goes into the first step, and change it if asked to; once a pass."""
        if self.entry is not None:
            return None
        first = next(tensors_in((args, kwargs)))
        with torch._C.DisableTorchFunction():  # this sum is none of the network's
            changed = first.clone() if self._change is None else first + self._change
        self.entry = changed.detach(), _edge(changed)
        return _replaced(args, first, changed), {
            key: changed if value is first else value for key, value in kwargs.items()
        }

    def enter(self, path: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Follow which module's code runs."""
        self._paths.append(path)

    def leave(self, module: nn.Module, output: Any) -> None:
        """Follow which module's code runs."""
        self._paths.pop()

    def meet(self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Take the operands that are due, and say which addition or product this is."""
        if not self._paths:
            return None
        path = self._paths[-1]
        key = (path, kind, self._counts[path, kind])
        self._counts[path, kind] += 1
        for site in self._sites.get(key, ()):
            value = operands_of(args, kwargs)[site.operand]
            if not isinstance(value, Tensor) or value.ndim != site.dims:
                raise StepError(
                    f"The code of {site.module!r} did not add and multiply as it did when its step "
                    "was found. Find the steps again with `stiffnet.steps` on such a batch."
                )
            scale = float(kwargs.get("alpha", 1)) if site.operand == 1 else 1.0
            self._met[site] = value.clone() if scale == 1.0 else value * scale
        return key if key in self._sites and kind == "add" else None

    def met(self, key: tuple[str, str, int], result: Tensor) -> None:
        """Take the sum."""
        self._sums[key[0], key[2]] = result.detach().clone(), _edge(result)


class _Follow(TorchFunctionMode):
    """Shows additions and products to a `Pass`, before and after they run."""

    def __init__(self, seen: Pass) -> None:
        super().__init__()
        self._seen = seen

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kind = KINDS.get(name_of(func))
        key = None
        if kind is not None:
            key = self._seen.meet(kind, args, kwargs or {})
        result = func(*args, **(kwargs or {}))
        if key is not None:
            self._seen.met(key, result)
        return result


def _edge(value: Tensor) -> GradientEdge | None:
    return get_gradient_edge(value) if value.requires_grad else None


def _replaced(args: tuple[Any, ...], first: Tensor, changed: Tensor) -> tuple[Any, ...]:
    return tuple(changed if value is first else value for value in args)
