"""The residual steps of any network, in the order in which they run."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from stiffnet.errors import NoStepsError, StepError
from stiffnet.nested import tensors_in
from stiffnet.trajectory.batch import Example, as_arguments, picked
from stiffnet.trajectory.graph import Frame, Watch
from stiffnet.trajectory.origins import StrangeSum
from stiffnet.trajectory.recorder import Kept
from stiffnet.trajectory.rule import Found, passed_over, residual_additions, verdicts
from stiffnet.trajectory.stages import acts_on_one_state
from stiffnet.trajectory.step import Site as Site, Step as Step
from stiffnet.trajectory.tokens import with_tokens
from stiffnet.trajectory.wrappers import is_exported, plain_run, unwrap
from stiffnet.words import first_line

_ROUNDING = 1e-2  # between two copies of a sample, as a share of the largest number
PROBE_BATCHES = (2, 3)  # two batch sizes, to see which axis of a state counts the samples


def steps(model: nn.Module, example: Any) -> list[Step]:
    """Find the residual steps of a network, in the order in which they run.

    Args:
        model: Any network. It is run twice in evaluation mode, on a few samples, and left as it
            was. Compiled, data-parallel and Fabric wrappers are looked through.
        example: One batch: a tensor, a tuple of positional or a dictionary of keyword arguments.
            Its first axis counts the samples. A list of images, as detectors take it, is one
            argument.

    Raises:
        StepError: If the network has none (VGG, DenseNet), cannot be run on the example, or makes a
            step in code that cannot be watched.

    Example:
        >>> import timm, torch
        >>> model = timm.create_model("resnet18")
        >>> found = steps(model, torch.rand(1, 3, 64, 64))
        >>> [(step.name, step.stage, step.shape) for step in found[:3]]
        [('layer1.0', 0, (64, 16, 16)), ('layer1.1', 0, (64, 16, 16)), ('layer2.0', 1, (128, 8, 8))]
    """
    return steps_of_call(model, as_arguments(example))


def steps_of_call(model: nn.Module, call: Example) -> list[Step]:
    """Find the steps that a call of a network takes; see `steps`."""
    model = unwrap(model)
    if isinstance(model, torch.jit.ScriptModule):
        raise StepError(
            f"{type(model).__name__} is TorchScript as a whole, which cannot be looked into. "
            "Measure the Python module that it was made from."
        )
    given = list(tensors_in(call))
    if not given:
        raise StepError(
            f"The example for {type(model).__name__} holds no tensor. Give one batch that the "
            "network takes, such as a tensor of images."
        )
    if any(tensor.ndim and not len(tensor) for tensor in given):
        raise StepError("The example batch is empty. Give at least one sample.")
    (watch, found), (again, other) = (_additions(model, call, size) for size in PROBE_BATCHES)
    _refuse_strangers(model, watch.origins.sums, again.origins.sums)
    if [(c.state_at, c.rate_at) for c in found] != [(c.state_at, c.rate_at) for c in other]:
        raise StepError(
            f"{type(model).__name__} took different additions on {PROBE_BATCHES[0]} and on "
            f"{PROBE_BATCHES[1]} samples. Its steps depend on the batch size; measure a network "
            "whose code does not."
        )
    if not found:
        raise NoStepsError(
            f"{type(model).__name__} has no residual steps: no addition in it joins a state with "
            "a branch computed from that state (VGG, DenseNet and ShuffleNet have none). "
            "Measure a residual network."
        )
    made = [_step(a, b, watch.totals) for a, b in zip(found, other, strict=True)]
    _refuse_scattered(model, made, call)
    return with_tokens(model, _in_stages(made, found), call)


def _refuse_strangers(
    model: nn.Module, few: Sequence[StrangeSum], many: Sequence[StrangeSum]
) -> None:
    """Refuse sums of values that came from nowhere and have a row for each sample.

    What is as large on both batches is a constant that somebody keeps.
    """
    for one, other in zip(few, many, strict=False):
        if one.sources != other.sources:
            where = repr(one.module) if one.module else f"the code of {type(model).__name__}"
            raise StepError(
                f"In {where} something is added that cannot be followed to where it was computed "
                "(in NumPy, under `torch.vmap`, in another thread), so that it is not known "
                "whether this is a step. Compute it by torch's functions, on whole batches."
            )


def _refuse_scattered(model: nn.Module, steps: Sequence[Step], call: Example) -> None:
    """Refuse states whose rows of one sample are not side by side, as in (time, samples) flattened.

    Two copies of a sample must then give two equal halves.
    """
    sites = {s for step in steps for s in (step.state_at, step.rate_at) if s.entries > 1}
    if not sites:
        return
    twice = Example(*(picked(part, torch.tensor([0, 0])) for part in call))
    with plain_run(model), Kept(model, steps, torch.clone) as seen:
        run_on(model, twice)
    for site in sites & seen.values.keys():
        one, other = seen.values[site].chunk(2, dim=site.axis)
        if not one.is_meta and bool((one - other).abs().max() > _ROUNDING * one.abs().max()):
            raise StepError(
                f"In {site.module!r} each sample has {site.entries} rows of an axis, and they are "
                "not side by side, so that the samples cannot be told apart. Flatten with the "
                "sample's axis first, as in `x.flatten(0, 1)` of (samples, time, ...)."
            )


def _step(found: Found, other: Found, totals: Mapping[tuple[str, str], int]) -> Step:
    """Combine two probes into a step whose sample axes are known."""
    module = found.state_at.module

    def known(site: Site, few: tuple[int, ...], many: tuple[int, ...]) -> Site:
        axis, entries = sample_axis(module, few, many)
        of = totals.get((site.module, site.kind), 0)
        return replace(site, of=of, axis=axis, entries=entries)

    at = known(found.state_at, found.state_shape, other.state_shape)
    kept = tuple(n for i, n in enumerate(found.state_shape) if i != at.axis)
    return Step(
        name=module.replace("._orig_mod", "").removeprefix("_orig_mod."),
        stage=0,
        shape=kept if at.entries == 1 else (at.entries, *kept),
        identity=found.identity,
        counted=True,
        branch=found.branch,
        gates=found.gates,
        state_at=at,
        increment_at=replace(at, operand=1 - at.operand),
        rate_at=known(found.rate_at, found.rate_shape, other.rate_shape),
    )


def sample_axis(module: str, few: tuple[int, ...], many: tuple[int, ...]) -> tuple[int, int]:
    """Axis that grew with the number of samples, and its entries per sample.

    A value in the code of `module` had these two shapes on the two `PROBE_BATCHES`.
    """
    less, more = PROBE_BATCHES
    grown = [i for i, (a, b) in enumerate(zip(few, many, strict=True)) if a != b]
    if len(grown) != 1 or few[grown[0]] * more != many[grown[0]] * less:
        raise StepError(
            f"The state in {module!r} has shape {few} for {less} samples and {many} for {more}, "
            "so no one axis counts the samples. Give a batch whose first axis is the sample."
        )
    return grown[0], few[grown[0]] // less


def _in_stages(made: list[Step], found: list[Found]) -> list[Step]:
    """Number the additions of each module and the runs of one state."""
    staged: list[Step] = []
    seen: Counter[str] = Counter()
    for i, step in enumerate(made):
        first = not i or not acts_on_one_state(found[i - 1 : i + 1], made[i - 1 : i + 1])
        stage = staged[-1].stage + first if staged else 0
        nth = seen[step.name]
        seen[step.name] += 1
        name = f"{step.name}#{nth}" if nth else step.name
        staged.append(replace(step, name=name, stage=stage, counted=not first))
    return staged


def _additions(model: nn.Module, given: Example, size: int) -> tuple[Watch, list[Found]]:
    """Run `size` samples through the model and apply the rule to every frame."""
    call = given.resized(size)
    try:
        with plain_run(model), Watch(model, call, closely=True) as watch:
            run_on(model, call)
    except StepError as error:
        if is_exported(model) or not _runs(model, given):
            raise
        raise StepError(
            f"{type(model).__name__} runs on this example and not on {size} samples of it, which "
            f"show what axis counts the samples ({first_line(error.__cause__ or error)}). Let its "
            "code take any number of samples."
        ) from error
    if places := passed_over(watch.frames):
        raise StepError(
            f"In {places[0]}, which holds several blocks, {len(places)} sums add a rate to a state "
            "that also goes on beside the sum, so that it cannot be said whether they are steps. "
            "Measure the network in the blocks from which this code was made."
        )
    found = [*residual_additions(watch.frames), *_opaque_blocks(watch.frames)]
    return watch, [step for _, step in sorted(found, key=lambda pair: pair[0])]


def _opaque_blocks(frames: list[Frame]) -> Iterator[tuple[int, Found]]:
    """Blocks of TorchScript, whose code cannot be watched, that are steps, and when they began.

    Such a block counts as a step where it stands among siblings of its kind, keeps the shape and,
    as far as its operators show, adds one rate to its state.

    Raises:
        StepError: If the operators of such a module show steps that cannot be read so.
    """
    opaque = [f for f in frames if isinstance(f.module, torch.jit.ScriptModule) and f.parent]
    kinds = Counter((f.parent, f.module.original_name) for f in opaque)
    calls: Counter[str] = Counter()
    for frame in opaque:
        entered = [node.shape for node in frame.nodes if node.op == "argument"]
        inside = len(verdicts(frame))
        number = calls[frame.path]
        calls[frame.path] += 1
        repeated = kinds[frame.parent, frame.module.original_name] > 1
        readable = repeated and entered[:1] == frame.result_shapes[:1] != []
        if inside > 1 or (inside and not readable):
            raise StepError(
                f"{frame.path!r} is TorchScript and has {inside} step{'s' if inside > 1 else ''} "
                "that cannot be watched. Measure the plain Python module that it was made from."
            )
        if readable and (inside or not frame.returned):
            shape, path = entered[0], frame.path
            state_at, rate_at = (Site(path, "block", number, i, 0, len(shape)) for i in (0, 1))
            yield frame.nodes[0].time, Found(state_at, shape, rate_at, shape, True, (path,))


def _runs(model: nn.Module, call: Example) -> bool:
    try:
        with plain_run(model):
            call.on(model)
    except Exception:  # foreign code
        return False
    return True


def run_on(model: nn.Module, call: Example) -> Any:
    """Run a network on an example; if it cannot be run, a StepError says why and what to do."""
    try:
        return call.on(model)
    except StepError:  # which says why and what to do
        raise
    except Exception as error:
        shapes = ", ".join(str(tuple(t.shape)) for t in tensors_in(call))
        advice = "Give an example that the network takes."
        if is_exported(model):
            advice = "Export it with `dynamic_shapes` that leave the number of samples open."
        raise StepError(
            f"{type(model).__name__} cannot be run on inputs of shape {shapes}: "
            f"{first_line(error)}. {advice}"
        ) from error
