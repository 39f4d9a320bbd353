"""A model and inputs in, the eigenvalues of its steps' Jacobians out: of one step, or of many."""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from stiffnet.errors import (
    DataError,
    NonFiniteError,
    ShapeChangesError,
    StepError,
    UnknownNameError,
)
from stiffnet.provenance import facts_on
from stiffnet.registry import unknown
from stiffnet.results.spectra import Seen, SpectrumReport
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


class Store(Protocol):
    """Where spectra are kept as they are found."""

    def get(self, step: str, number: int, image: Tensor) -> Spectrum | None:
        """Return what was kept of a step and image, or None."""

    def put(self, step: str, number: int, image: Tensor, found: Spectrum) -> None:
        """Keep it."""


def spectra(
    model: nn.Module,
    images: Iterable[tuple[int, Tensor, Tensor | None]],
    steps: Sequence[Step],
    *,
    of: Of = "branch",
    method: Method = "auto",
    cap: int = CAP,
    classes: Sequence[str] = (),
    judge: bool = True,
    facts: Mapping[str, str] | None = None,
    store: Store | None = None,
    on_plan: Callable[[str, Plan], object] = lambda step, plan: None,
    on_spectrum: Callable[[], object] = lambda: None,
) -> SpectrumReport:
    """Find the spectra of steps of a network, image by image.

    Args:
        model: Any residual network; see `stiffnet.spectrum`.
        images: The number of an image in the data, the image as a batch of one, and its label as a
            tensor of one, or None.
        steps: Steps of the network. Those that change the shape have singular values only.
        of: The ``branch`` or the ``block``.
        method: As for `stiffnet.spectrum`. For steps that change the shape, ``krylov`` takes the
            place of every method but ``planes``.
        cap: Bytes that matrices may take.
        classes: Names of the labels.
        judge: The labels are numbers of the network's outputs, so that there is a loss.
        facts: What the report should say about where its numbers come from.
        store: Where spectra are kept as they are found, and looked for first.
        on_plan: Called with a step's name and what to expect, before each that is computed.
        on_spectrum: Called after each.

    Under `torch.distributed` each rank takes its own images, and all get the same report.

    Raises:
        StepError: If there is no step or no image, or as for `stiffnet.spectrum`.
        DataError: If a label does not fit the network.
    """
    if not steps:
        raise StepError("No step was given. Name some, or give a network that has residual steps.")
    network = exact_copy(model)
    seen: list[Seen] = []
    found: dict[str, list[Spectrum]] = {step.name: [] for step in steps}
    what: dict[str, str] = {}
    for number, image, label in images:
        what = what or what_samples_are(network, image)
        seen.append(_judged(network, number, image, label, judge=judge))
        for step in steps:
            value = None if store is None else store.get(step.name, number, image)
            if value is None:
                tell = partial(on_plan, step.name)
                value = _found(network, step, image, of=of, method=method, cap=cap, on_plan=tell)
                if store is not None:
                    store.put(step.name, number, image, value)
            found[step.name].append(value)
            on_spectrum()
    seen, found = _gathered(seen, found)
    if not seen:
        raise StepError("There was no image, so nothing was computed. Give some.")
    return SpectrumReport(
        images=tuple(seen),
        spectra={name: tuple(values) for name, values in found.items()},
        classes=tuple(classes),
        facts=facts_on(network, what, facts),
    )


def _gathered(
    seen: list[Seen], found: dict[str, list[Spectrum]]
) -> tuple[list[Seen], dict[str, list[Spectrum]]]:
    """What all ranks found, in the order of the images."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return seen, found
    everyone = [(seen, found)] * dist.get_world_size()
    dist.all_gather_object(everyone, (seen, found))
    images = [image for part, _ in everyone for image in part]
    order = sorted(range(len(images)), key=lambda i: images[i].number)
    merged = {name: [one for _, part in everyone for one in part[name]] for name in found}
    return [images[i] for i in order], {k: [v[i] for i in order] for k, v in merged.items()}


def _found(
    network: nn.Module, step: Step, image: Tensor, *, method: Method, **options: Any
) -> Spectrum:
    try:
        return spectrum(network, step, image, method=method, **options)
    except ShapeChangesError:
        return spectrum(network, step, image, method="krylov", **options)


def _judged(
    network: nn.Module, number: int, image: Tensor, label: Tensor | None, *, judge: bool
) -> Seen:
    """What the network makes of an image, as far as a label says what it should."""
    if label is None:
        return Seen(number)
    wanted = int(label)
    if not judge:
        return Seen(number, wanted)
    with torch.no_grad():
        logits: Any = network(image.double())
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise DataError(
            "There are labels, and the network gives no row of logits for each image. Leave the "
            "labels out, or give a classifier."
        )
    if not 0 <= wanted < logits.shape[1]:
        raise DataError(
            f"Image {number} has label {wanted}, and the network has {logits.shape[1]} outputs. "
            "Give a network of as many classes as the data has."
        )
    if not bool(logits.isfinite().all()):
        raise NonFiniteError(
            f"The network's outputs for image {number} are NaN or infinite. Check the weights and "
            "this input."
        )
    loss = F.cross_entropy(logits, torch.tensor([wanted]))
    return Seen(number, wanted, float(loss), bool(logits.argmax() == wanted))


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
