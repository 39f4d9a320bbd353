"""A model and one input in, the eigenvalues of a step's Jacobian out."""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from stiffnet.errors import DataError, StepError, UnknownNameError
from stiffnet.provenance import facts_on
from stiffnet.registry import unknown
from stiffnet.results.spectrum import Spectrum
from stiffnet.stiffness.spectrum import CAP, TOLERANCE, Method, Plan, spectrum_of
from stiffnet.trajectory.branch import Branch, branch
from stiffnet.trajectory.steps import Step, steps as find_steps
from stiffnet.trajectory.tokens import refuse_padding, what_samples_are
from stiffnet.trajectory.wrappers import unwrap
from stiffnet.words import first_line

Of = Literal["branch", "block"]
_PARTS = {"branch": "increment", "block": "block"}
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def spectrum(
    model: nn.Module,
    step: Step | str,
    x: Any,
    *,
    of: Of = "branch",
    method: Method = "auto",
    cap: int = CAP,
    facts: Mapping[str, str] | None = None,
    on_plan: Callable[[Plan], object] = lambda plan: None,
    progress: Callable[[float], object] = lambda share: None,
) -> Spectrum:
    """Find the eigenvalues of the Jacobian of one residual step at one input.

    The network is taken in evaluation mode, as a copy in float64, and everything else of it is held
    at what it is on this input. The given network is left as it was.

    Args:
        model: Any residual network.
        step: One of its `steps`, or the name of one.
        x: One input of the network, as a batch of one.
        of: The ``branch``, which is what is added to the state, its gate included; or the
            ``block``, with the shortcut and what follows the sum in the block's code.
        method: ``reduced`` is exact, and far smaller than the Jacobian; ``dense`` forms the
            Jacobian; ``krylov`` finds both ends of the real axis and the largest eigenvalue of a
            Jacobian of any size, and the largest singular values where the shape changes;
            ``planes`` takes the eigenvalues of H × W slices, as the block-level paper did.
            ``auto`` is `reduced` where its matrix fits under the cap, and `krylov` otherwise.
        cap: Bytes that matrices may take.
        facts: What the result should say about where its numbers come from.
        on_plan: Called with the size, memory and time to expect, before the work begins.
        progress: Called with the share of the work that is done.

    Raises:
        UnknownNameError: If the network has no such step.
        StepError: If the step has no eigenvalues because it changes the shape, its matrix is larger
            than the cap, its code cannot be followed, or iterations do not converge.
        NonFiniteError: If a value or a derivative is NaN or infinite.
        DataError: If `x` is not one input.

    Example:
        >>> import stiffnet
        >>> model = stiffnet.create_model("resnet20_cifar").eval()
        >>> found = spectrum(model, "layer3.1", torch.rand(1, 3, 16, 16))
        >>> found.method, found.count == len(found.eigenvalues) == 64 * 4 * 4
        ('reduced', True)
    """
    if of not in get_args(Of):
        raise StepError(f"`of` is {of!r}. Give 'branch' or 'block'.")
    network = exact_copy(model)
    inputs = _one(x)
    refuse_padding(network, inputs, "a spectrum")
    function = function_of(network, step, inputs, of=of)
    peak, start = _watch_memory(), time.perf_counter()
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False):
        found = spectrum_of(
            function, function.input, method=method, cap=cap, on_plan=on_plan, progress=progress
        )
    many = found.count or None
    return Spectrum(
        step=function.step.name,
        of=of,
        method=found.plan.method,
        shape=_without_batch(function.input),
        shape_out=_without_batch(function.output),
        eigenvalues=found.values,
        count=found.count,
        inner=found.plan.inner,
        cut=found.plan.cut,
        tolerance=TOLERANCE,
        negative_share=None if found.negative is None or not many else found.negative / many,
        outside_share=None if found.outside is None or not many else found.outside / many,
        residual=found.residual,
        products=found.products,
        condition=found.condition,
        norm=found.norm,
        singular_values=np.zeros(0) if found.singular is None else found.singular,
        elements=function.input.numel() * function.output.numel(),
        seconds=time.perf_counter() - start,
        peak_bytes=peak(),
        facts=facts_on(network, what_samples_are(network, inputs), facts),
    )


def _watch_memory() -> Callable[[], int | None]:
    """Return what tells the largest memory of the process since now; None where nothing does.

    >>> peak = _watch_memory()()
    >>> peak is None or peak > 0
    True
    """
    try:
        _RESET.write_text("5")  # which sets the high-water mark to what is in use now
    except OSError:
        return lambda: None

    def peak() -> int | None:
        found = re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())
        return int(found[1]) * 1024 if found else None

    return peak


def exact_copy(model: nn.Module) -> nn.Module:
    """Return a copy in float64, in evaluation mode, without gradients; or a StepError."""
    network = unwrap(model)
    try:
        copied = deepcopy(network).double().eval()
    except RuntimeError as error:
        raise StepError(
            f"{type(network).__name__} cannot be copied: {first_line(error)}. Take out what keeps "
            "values of a pass; torch.nn.utils.parametrizations has norms of weights that do not."
        ) from error
    for parameter in copied.parameters():
        parameter.requires_grad = False
    return copied


def function_of(model: nn.Module, step: Step | str, inputs: Any, *, of: Of) -> Branch:
    """Return a step as a function of its input."""
    if isinstance(step, str):
        step = step_called(step, find_steps(model, inputs), of=type(model).__name__)
    return branch(model, step, inputs, of=_PARTS[of])  # type: ignore[arg-type]


def step_called(name: str, there: Iterable[Step], *, of: str) -> Step:
    """Return the step of this name of a network of that name; or an UnknownNameError."""
    known = {step.name: step for step in there}
    if name not in known:
        raise UnknownNameError(unknown(f"step of {of}", name, known, listing="`stiffnet.steps`"))
    return known[name]


def _without_batch(value: Tensor) -> tuple[int, ...]:
    """Shape of the one sample, whichever axis has the batch."""
    shape = list(value.shape)
    if 1 in shape:
        shape.remove(1)
    return tuple(shape)


def _one(x: Any) -> Any:
    """Refuse anything but one input, and turn its numbers into float64."""
    if isinstance(x, Mapping):
        return {key: _one(value) for key, value in x.items()}
    if not isinstance(x, Tensor) or not x.ndim or len(x) != 1:
        found = f"of shape {tuple(x.shape)}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
        raise DataError(
            f"A spectrum is that of one input, and `x` is {found}. Give a batch of one, such as "
            "`images[:1]`."
        )
    return x.detach().double() if x.is_floating_point() else x.detach()
