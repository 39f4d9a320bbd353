"""A model and images in, the spectra of its steps out, one step and image after the other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from stiffnet.errors import DataError, NonFiniteError, ShapeChangesError, StepError
from stiffnet.observe.spectrum import Of, exact_copy, spectrum
from stiffnet.provenance import facts_on
from stiffnet.results.spectra import Seen, SpectrumReport
from stiffnet.results.spectrum import Spectrum
from stiffnet.stiffness.spectrum import CAP, Method, Plan
from stiffnet.trajectory.steps import Step
from stiffnet.trajectory.tokens import what_samples_are


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
