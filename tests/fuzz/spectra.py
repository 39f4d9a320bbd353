"""The law of `spectrum`: the eigenvalues of the Jacobian that autograd finds in the reference."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import (
    GradientEdge,
    allow_mutation_on_saved_tensors,
    get_gradient_edge,
)
from torch.overrides import TorchFunctionMode

import stiffnet
from fuzz.build import Case
from fuzz.measuring import found_steps, matched
from fuzz.oracle import noted
from fuzz.verdicts import WrongError
from stiffnet.errors import StepError

LARGEST = 200  # numbers in a state whose whole Jacobian is formed, a row at a time
STEPS = 2  # of one network
POWERS = 3
TOLERANCE = 1e-9  # of n times the power of the largest singular value, which bounds the trace


@dataclass
class Taken:
    """One step of the reference: what autograd needs to differentiate it."""

    edge: GradientEdge | None
    state: Tensor
    increment: Tensor
    sign: int = 0
    """-1 if the code subtracts it; 0 as long as nobody has added it."""


class Sums(TorchFunctionMode):
    """Finds out by the values which steps were added, and which subtracted."""

    def __init__(self, steps: list[Taken]) -> None:
        super().__init__()
        self.steps = steps

    def __torch_function__(
        self, function: Callable, types: Any, args: Any = (), kwargs: Any = None
    ):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            with torch._C.DisableTorchFunction(), torch.no_grad():
                for step in self.steps:
                    if not step.sign and result.shape == step.state.shape:
                        step.sign = _sign(result.detach() - step.state, step.increment.detach())
        return result


def _sign(change: Tensor, increment: Tensor) -> int:
    for sign in (1, -1):
        if torch.allclose(change, sign * increment, rtol=1e-9, atol=1e-12):
            return sign
    return 0


def hold_spectrum(case: Case) -> None:
    """Hold `spectrum` to Jacobians of the reference, by the traces of their powers.

    Those are sums of powers of the eigenvalues, which each alone may be ill-conditioned.
    """
    model = copy.deepcopy(case.plain)
    found = found_steps(case, model, case.taken)
    if not found:
        return
    x = case.example[:1]
    twin = case.twin()
    which = matched(found, noted(twin, case.probe, x))
    jacobians = {}
    with _differentiable(case, twin) as steps:
        twin(x.clone().requires_grad_())
        for step, at in zip(found, which, strict=True):
            # The second of two rates of one value is a function of that value, not of the sum.
            second = "form: chain" in case.made.traits and "#" in step.name
            jacobian = None if second or not step.identity else _jacobian(steps[at])
            if jacobian is not None and len(jacobians) < STEPS:
                jacobians[step] = jacobian
    if not jacobians:
        raise StepError(f"no step of at most {LARGEST} numbers whose Jacobian autograd finds")
    for number, (step, jacobian) in enumerate(jacobians.items(), case.made.seed):
        method: Any = "dense" if number % 2 else "reduced"
        found_values = stiffnet.spectrum(model, step, x, method=method).eigenvalues
        _compare(step.name, method, jacobian, found_values)


@contextmanager
def _differentiable(case: Case, twin: nn.Module) -> Iterator[list[Taken]]:
    """Note the steps of a pass so that they can be differentiated, as mathematics would.

    Whatever the code does to gradients is undone: switching them off, writing into what they need,
    and checkpoints, which differentiate what is written in place wrongly.
    """
    steps: list[Taken] = []

    def take(state: Tensor, increment: Tensor) -> None:
        edge = get_gradient_edge(state) if state.requires_grad else None
        steps.append(Taken(edge, state.detach().clone(), increment))

    case.probe.taken = take
    torch.manual_seed(1)
    try:
        with (
            torch.enable_grad(),
            allow_mutation_on_saved_tensors(),
            Sums(steps),
            patch("torch.no_grad", nullcontext),
            patch.dict(type(twin).forward.__globals__, checkpoint=_called),
            patch("torch.nn.functional.prelu", _prelu),
        ):
            yield steps
    finally:
        case.probe.taken = None


def _called(function: Callable, *args: Any, use_reentrant: bool = False) -> Any:
    """Stand for a checkpoint."""
    return function(*args)


def _prelu(x: Tensor, weight: Tensor) -> Tensor:
    """PReLU with the slope 1 at 0 that torch has forwards; backwards it takes the weight's."""
    weights = weight.view(-1, *[1] * (x.ndim - 2)) if x.ndim > 1 else weight
    return torch.where(x >= 0, x, weights * x)


def _jacobian(step: Taken) -> np.ndarray | None:
    """Differentiate a step; None if it is too large, changes the shape, or cannot be."""
    increment, size = step.increment, step.state.numel()
    known = step.edge is not None and step.sign and increment.requires_grad
    if not known or size > LARGEST or increment.numel() != size:
        return None
    rows = []
    for value in increment.flatten():
        (row,) = torch.autograd.grad(value, step.edge, retain_graph=True, allow_unused=True)
        rows.append(torch.zeros(size) if row is None else row.flatten())
    return step.sign * torch.stack(rows).double().numpy()


def _compare(name: str, method: str, jacobian: np.ndarray, eigenvalues: np.ndarray) -> None:
    size = len(jacobian)
    if len(eigenvalues) != size:
        raise WrongError(
            f"{name}: {len(eigenvalues)} eigenvalues by {method}, and there are {size}"
        )
    largest = max(np.linalg.norm(jacobian, 2), 1e-300)
    for power in range(1, POWERS + 1):
        expected = np.trace(np.linalg.matrix_power(jacobian / largest, power))
        got = np.sum((eigenvalues / largest) ** power)
        if not abs(got - expected) <= TOLERANCE * size:
            raise WrongError(
                f"{name}: eigenvalues by {method} to the power {power} sum up to {got:.6g} times "
                f"that of the norm, and the trace is {expected:.6g} times it"
            )
