"""Theorem 6.1's bound, measured: how a perturbation grows through the steps of a network."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn.attention import SDPBackend, sdpa_kernel

from stiffnet.errors import DataError, NonFiniteError, StepError
from stiffnet.nested import mapped, tensors_in
from stiffnet.provenance import facts_on
from stiffnet.results.growth import Growth
from stiffnet.stiffness.jacobian_norm import Layout, jacobian_norm
from stiffnet.trajectory.batch import as_arguments, on_device, resized, samples_in
from stiffnet.trajectory.norms import sample_norms
from stiffnet.trajectory.recorder import Place, Recorder
from stiffnet.trajectory.steps import PROBE_BATCHES, Site, Step, sample_axis, steps as find_steps
from stiffnet.trajectory.tokens import refuse_padding, what_samples_are
from stiffnet.trajectory.wrappers import plain_run, unwrap


def growth(
    model: nn.Module,
    images: Any,
    *,
    epsilon: float = 1e-3,
    draws: int = 4,
    iterations: int = 20,
    seed: int = 0,
) -> Growth:
    """Measure how a perturbation of the first step's input grows, and what it is bound to.

    Exact: the growth, the difference of two passes; the largest gate. A reading: ‖W_t‖ of the
    theorem, for which a real branch has the Jacobian of its rate at the image, by as many Lanczos
    iterations as `iterations` says (an estimate from below, within a few per cent at 20). A
    shortcut that is no identity counts with its own norm instead of 1, and what lies between two
    steps (an activation, a pooling) belongs to the second of them.

    Args:
        model: A residual network, with or without attention, whose steps follow one another. It is
            run in evaluation mode and left as it was.
        images: A few images: one batch, as for `stiffnet.steps`.
        epsilon: Size of the perturbation, as a share of the norm of what it is added to.
        draws: How many random directions to try for each image.
        iterations: Of the estimate of each norm.
        seed: Of directions and starting vectors.

    Raises:
        StepError: If the network has no steps, or its steps do not follow one another.
        DataError: If an argument makes no sense.
        NonFiniteError: If a state is NaN or infinite; it names the image and the step.

    Example:
        >>> import stiffnet
        >>> model = stiffnet.create_model("resnet20_cifar", seed=0)
        >>> found = growth(model, torch.rand(1, 3, 16, 16), iterations=5)
        >>> len(found.to_frame()), bool((found.nearest < 1).all())
        (9, True)
    """
    for name, value in (("epsilon", epsilon), ("draws", draws), ("iterations", iterations)):
        if not value > 0:
            raise DataError(f"`{name}` is {value}. Give a number above zero.")
    network = unwrap(model)
    images = on_device(images, network)
    refuse_padding(network, images, "the growth of a perturbation")
    found = find_steps(network, images)
    random = torch.Generator().manual_seed(seed)
    with plain_run(network), sdpa_kernel(SDPBackend.MATH):  # the others have no second derivative
        entry = _entry(network, found, images)
        run = partial(_passed, network, found, entry)
        shapes = (tuple(run(resized(images, size)).begun[0].shape) for size in PROBE_BATCHES)
        layout = Layout(*sample_axis(found[0].module, *shapes))
        clean = run(images)
        measured = []
        for _ in range(draws):
            change = _change(clean.begun[0], layout, epsilon, random)
            measured.append(_grown(clean, run(images, change), layout))
        with torch.enable_grad():
            done = run(mapped(images, _leaf))
            local = _norms(done, layout, samples_in(images), iterations, random)
    facts = facts_on(network, what_samples_are(network, images), None)
    return _summary(found, torch.stack(measured), local, epsilon, facts)


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


def _passed(
    network: nn.Module, steps: list[Step], entry: str, images: Any, change: Tensor | None = None
) -> Pass:
    with Pass(network, steps, entry, change) as done:
        as_arguments(images).on(network)
    return done


def _entry(network: nn.Module, steps: list[Step], images: Any) -> str:
    """Path of the innermost module around the first step that is given what the step works on.

    Both operands of its sum must come from there: a module that only adds (BERT's) is given them
    apart, and the one around it is given what both are made from.
    """
    parts = steps[0].module.split(".")
    for end in range(len(parts), -1, -1):
        path = ".".join(parts[:end])
        with torch.enable_grad():
            done = _passed(network, steps, path, mapped(images, _leaf))
        first = done.additions[0]
        if all(_comes_from(value, done.entry) for value in (first.shortcut, first.increment)):
            return path
    raise StepError(
        f"No module around the first step {steps[0].name!r} is given a state that both its "
        "shortcut and its branch are computed from, so that a perturbation has nowhere to begin. "
        "Choose a network whose blocks are modules, and take out what detaches their input."
    )


def _comes_from(value: Tensor, entry: tuple[Tensor, GradientEdge | None] | None) -> bool:
    if entry is None or entry[1] is None or not value.requires_grad:
        return False
    ones = torch.ones_like(value)
    (found,) = torch.autograd.grad(value, entry[1], ones, retain_graph=True, allow_unused=True)
    return found is not None


def _leaf(value: Any) -> Any:
    """Return a tensor from which a graph begins."""
    floating = isinstance(value, Tensor) and value.is_floating_point()
    return value.detach().clone().requires_grad_() if floating else value


def _change(state: Tensor, layout: Layout, epsilon: float, random: torch.Generator) -> Tensor:
    """Draw a perturbation of a state, of `epsilon` times its size."""
    rows = layout.rows(state)
    direction = torch.randn(rows.shape, generator=random, dtype=torch.float64).to(rows.device)
    size = epsilon * torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    unit = torch.linalg.vector_norm(direction, dim=1, keepdim=True)
    return layout.like(direction * size / unit, state)


def _grown(clean: Pass, noisy: Pass, layout: Layout) -> Tensor:
    """Logarithms of the growth of a perturbation, (images, steps)."""
    change = layout.rows(noisy.begun[0] - clean.begun[0])
    given = torch.linalg.vector_norm(change, dim=1).cpu()
    columns = []
    for step, one, other in zip(clean.steps, clean.additions, noisy.additions, strict=True):
        site = step.state_at
        after = sample_norms(other.sum - one.sum, axis=site.axis, entries=site.entries).cpu()
        _refuse(~torch.isfinite(after / given), step)
        columns.append((after / given).log())
    return torch.stack(columns, dim=1)


def _norms(
    done: Pass, layout: Layout, samples: int, iterations: int, random: torch.Generator
) -> Tensor:
    """Gates, and norms of shortcuts, rates and whole steps, at the images: (4, images, steps).

    `layout` is that of what goes into the first step.
    """
    state, edge = done.begun
    found = []
    for step, added in zip(done.steps, done.additions, strict=True):
        if edge is None or added.edge is None:
            raise StepError(
                f"No gradient reaches step {step.name!r}, so its Jacobian is not known. Take out "
                "what detaches its input."
            )
        gate, rate, rate_at = _gate(step, added, samples)
        norms = [gate]
        for value, site in (
            (added.shortcut, step.state_at),
            (rate, rate_at),
            (added.shortcut + added.increment, step.state_at),
        ):
            layouts = (layout, Layout(site.axis, site.entries))
            norm = jacobian_norm(
                value, (edge, state), layouts, iterations=iterations, generator=random
            )
            if norm is None:
                raise StepError(
                    f"Step {step.name!r} does not follow from the step before it, so that the "
                    "product of their norms bounds nothing. Choose a network whose steps form one "
                    "chain."
                )
            _refuse(~torch.isfinite(norm), step)
            norms.append(norm.cpu())
        found.append(torch.stack(norms))
        state, edge = added.sum, added.edge
        layout = Layout(step.state_at.axis, step.state_at.entries)
    return torch.stack(found, dim=2)


def _gate(step: Step, added: Added, samples: int) -> tuple[Tensor, Tensor, Site]:
    """Return the largest factor between rate and increment, the rate, and where it was met.

    Where the two cannot be compared entry by entry, the increment is the rate and the factor one.
    """
    if added.rate.shape != added.increment.shape:
        return torch.ones(samples, dtype=torch.float64), added.increment, step.state_at
    site = step.rate_at
    rows = Layout(site.axis, site.entries).rows
    rate, increment = rows(added.rate.detach()), rows(added.increment.detach())
    factors = torch.where(rate != 0, increment / rate, 0.0)
    return factors.abs().amax(dim=1).cpu(), added.rate, site


def _refuse(wrong: Tensor, step: Step) -> None:
    if bool(wrong.any()):
        image = int(wrong.nonzero()[0])
        raise NonFiniteError(
            f"A perturbation of image {image} is NaN or infinite at step {step.name!r}. Check the "
            "weights and this input."
        )


def _summary(
    steps: list[Step], measured: Tensor, local: Tensor, epsilon: float, facts: dict[str, str]
) -> Growth:
    """Average over images, and over draws; products by their logarithms."""
    gate, shortcut, rate, whole = local
    bound = (shortcut + gate * rate).log().cumsum(dim=1)
    nearest = (measured - bound).amax(dim=(0, 1)).exp()
    return Growth(
        steps=tuple(step.name for step in steps),
        images=measured.shape[1],
        draws=measured.shape[0],
        epsilon=epsilon,
        gate=gate.mean(dim=0).numpy(),
        shortcut=shortcut.mean(dim=0).numpy(),
        rate=rate.mean(dim=0).numpy(),
        log_growth=measured.mean(dim=(0, 1)).numpy(),
        log_growth_max=measured.amax(dim=(0, 1)).numpy(),
        log_local=whole.log().cumsum(dim=1).mean(dim=0).numpy(),
        log_bound=bound.mean(dim=0).numpy(),
        nearest=nearest.numpy(),
        facts=facts,
    )
