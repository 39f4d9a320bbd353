"""Folding: constant gates into weights, branches and norms into layers, all of it or nothing."""

import copy
import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.attention.asr import ConstantGate, ConstantIEBN
from stiffnet.errors import FoldError
from stiffnet.fold.branches import fold_branches
from stiffnet.fold.commute import Factors, all_factors, ways
from stiffnet.fold.cost import costs
from stiffnet.fold.merge import merge_norms
from stiffnet.fold.reading import Reading, Refusal, frames_of, read
from stiffnet.fold.report import Folded, FoldReport, FoldResult, Refused
from stiffnet.network.attach import Attachment, attached
from stiffnet.network.deployed import Change
from stiffnet.network.example import example_for
from stiffnet.network.gated import take_out
from stiffnet.network.norms import put_back
from stiffnet.trajectory.batch import as_arguments, resized
from stiffnet.trajectory.graph import tensors_in
from stiffnet.trajectory.wrappers import plain_run, unready

TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""Largest scaled error by dtype. Rounding a weight anew moves it by half a unit in its last place
(6e-8 in float32, 2e-3 in bfloat16), and a deep network adds such moves up."""
SAMPLES = 2  # of the example on which a pass is read; verified on all of it
PASSES = 5  # of each network, for its time


def fold(
    model: nn.Module,
    example: Any = None,
    *,
    fuse: bool = False,
    branches: bool = True,
    passes: int = PASSES,
) -> FoldResult:
    """Fold away what costs time at inference and changes nothing that a network computes.

    Constant gates (`stiffnet.asr`) are multiplied into the layers that feed them and taken out:
    every block is an object of its own class again, and the state dict loads into the plain
    backbone. Modules that know how to join their branches (RepVGG, ACNet, ...) do so. The given
    network is not touched; the result is a copy that was computed in float64 and compared with it
    on the example.

    Args:
        model: A network in evaluation mode.
        example: One batch that it takes. Made up where it is not given.
        fuse: Also merge every batch norm into the convolution or linear layer before it. The
            result is no longer the backbone that was trained, and faster than it.
        branches: Whether to join branches.
        passes: How often each of both networks is timed; 0 for not at all.

    Returns:
        The folded network, and a report.

    Raises:
        FoldError: If something cannot be folded, with its path and the reason, or nothing can be,
            or the outputs differ.

    Example:
        >>> import stiffnet, timm
        >>> model = stiffnet.attach(timm.create_model("resnet18"), stiffnet.asr("se")).eval()
        >>> result = fold(model, passes=0)
        >>> timm.create_model("resnet18").load_state_dict(result.model.state_dict())
        <All keys matched successfully>
    """
    reason = unready(model)
    if reason is not None:
        raise FoldError(f"{type(model).__name__} is not ready to be folded: {reason}")
    args, kwargs = as_arguments(example_for(model) if example is None else example)
    exact = copy.deepcopy(model).double()
    small = _double(resized(args, SAMPLES)), _double(resized(kwargs, SAMPLES))
    _, unable = _attempt(exact, *small)
    if unable is not None:
        raise FoldError(
            f"{type(model).__name__} cannot be run in float64 on this example, in which folding "
            f"is computed: {unable}. Give an `example` that it takes."
        ) from unable
    folded, refused = _fold_gates(exact, *small)
    changes: list[Change] = []
    if branches:
        exact, changes = fold_branches(exact)
        folded += [Folded(change.path, "branches", (change.path,)) for change in changes]
    if fuse:
        merged, left = merge_norms(exact, *small)
        changes += merged
        folded += [Folded(change.path, "norm", (change.into,)) for change in merged]
        refused += [Refused(path, reason) for path, reason in left.items()]
    if not folded:
        raise FoldError(_nothing(model, refused, fuse=fuse))
    exact_error = _compare(copy.deepcopy(model).double(), exact, *small, _unchanged(folded, exact))
    made = _rounded(exact, model)
    scaled_error = _compare(model, made, args, kwargs)
    images = max((len(t) for t in tensors_in((args, kwargs)) if t.ndim), default=1)
    before, after = costs((model, made), args, kwargs, passes=passes)
    report = FoldReport(
        tuple(folded), tuple(refused), scaled_error, exact_error, before, after, images,
        tuple(changes),
    )  # fmt: skip
    return FoldResult(made, report)


def _fold_gates(model: nn.Module, args: Any, kwargs: Any) -> tuple[list[Folded], list[Refused]]:
    """Fold every constant gate of a network, and say which others stay."""
    there = attached(model)
    constant = [sits for sits in there if _is_constant(model, sits)]
    refused = [
        Refused(sits.name, f"the step size of {sits.module} depends on the input")
        for sits in there
        if sits not in constant
    ]
    if not constant:
        return [], refused
    reading = read(model, args, kwargs)
    values = _constants(model, constant, reading)
    found: dict[str, list[Factors]] = {}
    reasons: dict[str, str] = {}
    for sits in constant:
        gate: Any = model.get_submodule(sits.name)
        try:
            if isinstance(gate, ConstantIEBN):
                continue
            found[sits.name] = _found(gate, values[sits.name], reading)
        except Refusal as reason:
            reasons[sits.name] = str(reason)
    if reasons:
        raise FoldError(_cannot(reasons, len(constant)))
    for parts in found.values():
        for part in parts:
            for holder in part.layer.holders:
                holder.scale(part.values.to(holder.tensor.device))
    folded = _take_out(model, constant, values, found)
    return folded, refused


def _is_constant(model: nn.Module, sits: Attachment) -> bool:
    return isinstance(model.get_submodule(sits.name), ConstantGate)


def _constants(
    model: nn.Module, gates: Sequence[Attachment], reading: Reading
) -> dict[str, Tensor]:
    """Value of every gate, asked in the order in which they ran: some hand a memory on."""
    values: dict[str, Tensor] = {}
    names = {model.get_submodule(sits.name): sits.name for sits in gates}
    for frame in reading.frames:
        if frame.module in names and names[frame.module] not in values:
            gate: Any = frame.module
            with torch.no_grad():
                values[names[gate]] = gate.constant().double()
    not_run = [name for name in names.values() if name not in values]
    missing = dict.fromkeys(not_run, "it does not run on the example")
    strange = {
        name: "its step size is not a finite number"
        for name, value in values.items()
        if not bool(value.isfinite().all())
    }
    if missing or strange:
        raise FoldError(_cannot(missing | strange, len(gates)))
    return values


def _found(gate: Any, value: Tensor, reading: Reading) -> list[Factors]:
    """Find the layers that take the value of a gate in."""
    frames = list(frames_of(reading, gate))
    if len(frames) > 1:
        raise Refusal(f"it is called {len(frames)} times in one pass")
    rate = next(node for node in frames[0].nodes if node.op == "argument")
    if rate.outer is None:
        raise Refusal("nothing stands between it and the network's input")
    shape, axis = rate.outer.shape, gate.channel_axis
    return all_factors(ways(rate.outer, reading, frames[0]), shape, axis, value)


def _take_out(
    model: nn.Module,
    gates: Sequence[Attachment],
    values: dict[str, Tensor],
    found: dict[str, list[Factors]],
) -> list[Folded]:
    folded = []
    blocks: dict[str, list[str]] = defaultdict(list)
    for sits in gates:
        gate: Any = model.get_submodule(sits.name)
        if isinstance(gate, ConstantIEBN):
            with torch.no_grad():
                gate.weight.mul_(values[sits.name])
            folded.append(Folded(sits.name, sits.module, (sits.name,)))
            continue
        block, _, child = sits.name.rpartition(".")
        blocks[block].append(child)
        into = tuple(dict.fromkeys(part.layer.name for part in found[sits.name]))
        folded.append(Folded(sits.name, sits.module, into))
    for path, children in blocks.items():
        take_out(model.get_submodule(path), children)
    put_back(model, only=ConstantIEBN)
    return folded


def _unchanged(folded: Sequence[Folded], made: nn.Module) -> list[str]:
    """Paths of modules in which something was folded and whose own results stay what they were.

    Those are the modules around both ends of every fold that they have a part in, as far as they
    are still there.
    """
    paths = {path for item in folded for path in _around(item.name)}
    paths &= {path for path, _ in made.named_modules()}
    return sorted(
        path
        for path in paths
        if all(len({_is_in(end, path) for end in (item.name, *item.into)}) == 1 for item in folded)
    )


def _around(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _is_in(path: str, outer: str) -> bool:
    return path.startswith(f"{outer}.")


def _double(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, list | tuple):
        return type(value)(_double(item) for item in value)
    if isinstance(value, dict):
        return {key: _double(item) for key, item in value.items()}
    return value


def _attempt(
    model: nn.Module, args: Any, kwargs: Any, places: Collection[str] = ()
) -> tuple[list[Tensor], Exception | None]:
    """Run a network; return its outputs and those of some of its modules, or what was raised."""
    inside: dict[str, list[Tensor]] = {place: [] for place in places}

    def keep(kept: list[Tensor], module: nn.Module, args: Any, output: Any) -> None:
        kept[:] = [tensor.clone() for tensor in tensors_in(output)]

    with ExitStack() as hooks, plain_run(model):
        for place, kept in inside.items():
            module = model.get_submodule(place)
            hooks.enter_context(module.register_forward_hook(partial(keep, kept)))
        try:
            output = model(*args, **kwargs)
        except Exception as error:  # whatever foreign code raises
            return [], error
    return [*tensors_in(output), *(t for place in inside for t in inside[place])], None


def _error(expected: Sequence[Tensor], result: Sequence[Tensor]) -> float:
    """Largest difference in a tensor over its largest number; infinite where shapes differ."""
    if not expected or [t.shape for t in expected] != [t.shape for t in result]:
        return math.inf
    return max(
        (_tensor_error(*pair) for pair in zip(expected, result, strict=True) if pair[0].numel()),
        default=0.0,
    )


def _tensor_error(expected: Tensor, result: Tensor) -> float:
    largest = float(expected.double().abs().max())
    error = float((expected.double() - result.double()).abs().max())
    return error / largest if largest else error


def _rounded(exact: nn.Module, like: nn.Module) -> nn.Module:
    """Give every tensor the dtype that it had; new ones get that of the network."""
    dtypes = {name: t.dtype for name, t in (*like.named_parameters(), *like.named_buffers())}
    usual = next((p.dtype for p in like.parameters() if p.is_floating_point()), torch.float32)
    for name, tensor in (*exact.named_parameters(), *exact.named_buffers()):
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(dtypes.get(name, usual))
    return exact


def _compare(
    model: nn.Module, made: nn.Module, args: Any, kwargs: Any, places: Collection[str] = ()
) -> float:
    """Run both on the same example, in their own dtype, and return the scaled error.

    Raises:
        FoldError: If they differ by more than rounding.
    """
    expected, failed = _attempt(model, args, kwargs, places)
    if failed is not None:
        raise FoldError(f"{type(model).__name__} cannot be run on this example: {failed}.")
    result, failed = _attempt(made, args, kwargs, places)
    error = _error(expected, result)
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    if failed is not None or not error <= TOLERANCES.get(dtype, TOLERANCES[torch.float32]):
        raise FoldError(_differs(model, error, dtype, failed))
    return error


def _cannot(reasons: dict[str, str], of: int) -> str:
    shown = [f"{name!r} ({reason})" for name, reason in list(reasons.items())[:3]]
    more = f" and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    return (
        f"{len(reasons)} of {of} constant gates cannot be folded: {'; '.join(shown)}{more}. "
        "Nothing was changed; attach them elsewhere, or leave them in."
    )


def _nothing(model: nn.Module, refused: list[Refused], *, fuse: bool) -> str:
    name = type(model).__name__
    if refused:
        first = f"{refused[0].name!r}: {refused[0].reason}"
        more = f", and {len(refused) - 1} more like it" if len(refused) > 1 else ""
        return (
            f"Nothing in {name} can be folded ({first}{more}). Train it with `stiffnet.asr(...)`, "
            "or hold its attention constant with `stiffnet.freeze_attention`."
        )
    also = "" if fuse else "; `fuse=True` would merge its norms"
    return (
        f"Nothing in {name} can be folded: no constant gate is attached and no branches are left, "
        f"as in a network that was folded already{also}."
    )


def _differs(model: nn.Module, error: float, dtype: torch.dtype, why: Exception | None) -> str:
    name = type(model).__name__
    if why is not None:
        return f"{name} cannot be run after folding: {why}. Nothing was changed; please report it."
    return (
        f"The folded {name} differs from the original by {error:.1e} of its largest output, in "
        f"{str(dtype).removeprefix('torch.')}. Nothing was changed; fold it in float64, or report "
        "it if it is in float64 already."
    )
