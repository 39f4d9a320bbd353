"""Folding: constant gates into weights, branches and norms into layers, all of it or nothing."""

import copy
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.errors import FoldError
from stiffnet.fold.branches import fold_branches
from stiffnet.fold.cost import costs
from stiffnet.fold.gates import fold_gates
from stiffnet.fold.merge import merge_norms
from stiffnet.fold.reading import mapped
from stiffnet.fold.report import Folded, FoldReport, FoldResult, Refused
from stiffnet.fold.verify import attempt, compare, first_line, unchanged
from stiffnet.network.deployed import Change
from stiffnet.network.example import example_for
from stiffnet.trajectory.batch import as_arguments, resized
from stiffnet.trajectory.graph import tensors_in
from stiffnet.trajectory.wrappers import unready

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
    on the example. What the network does not do on the example, because its code goes by sizes or
    values, is not seen.

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
    if not isinstance(model, nn.Module):
        raise FoldError(f"A network can be folded, and this is {model!r}. Build it first.")
    reason = unready(model)
    if reason is not None:
        raise FoldError(f"{type(model).__name__} is not ready to be folded: {reason}")
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    kinds = {"cpu", *(device.type for device in devices)}
    with ExitStack() as usual:  # whatever the caller has switched on
        usual.enter_context(torch.random.fork_rng(devices=list(devices)))
        usual.enter_context(torch.inference_mode(False))
        for kind in kinds:
            usual.enter_context(torch.autocast(kind, enabled=False))
        args, kwargs = as_arguments(example_for(model) if example is None else example)
        return _fold(model, args, kwargs, fuse=fuse, branches=branches, passes=passes)


def _fold(
    model: nn.Module, args: Any, kwargs: Any, *, fuse: bool, branches: bool, passes: int
) -> FoldResult:
    original = _copied(model)
    work, small = _in_float64(model, resized(args, SAMPLES), resized(kwargs, SAMPLES))
    is_exact = next((p.dtype for p in work.parameters()), torch.float64) == torch.float64
    folded, refused = fold_gates(work, *small)
    changes: list[Change] = []
    if branches:
        work, changes = fold_branches(work)
        folded += [Folded(change.path, "branches", (change.path,)) for change in changes]
    if fuse:
        merged, left = merge_norms(work, *small)
        changes += merged
        folded += [Folded(change.path, "norm", (change.into,)) for change in merged]
        refused += [Refused(path, reason) for path, reason in left.items()]
    if not folded:
        raise FoldError(_nothing(model, refused, fuse=fuse))
    whole = _copied(model).double() if is_exact else original
    exact_error = compare(whole, work, *small, unchanged(folded, work))
    made = _rounded(work, model)
    scaled_error = compare(original, made, args, kwargs)
    images = max((len(t) for t in tensors_in((args, kwargs)) if t.ndim), default=1)
    before, after = costs((original, made), args, kwargs, passes=passes)
    report = FoldReport(
        tuple(folded), tuple(refused), scaled_error, exact_error if is_exact else None, before,
        after, images, tuple(changes),
    )  # fmt: skip
    return FoldResult(made, report)


def _copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:  # foreign objects
        raise FoldError(
            f"{type(model).__name__} cannot be copied, and folding changes a copy: {error}. Take "
            "out what cannot be copied, such as the older `weight_norm`."
        ) from error


def _in_float64(model: nn.Module, args: Any, kwargs: Any) -> tuple[nn.Module, tuple[Any, Any]]:
    """Return a copy in float64 and its example; in the network's own dtype if it casts itself."""
    exact, small = _copied(model).double(), (mapped(args, _double), mapped(kwargs, _double))
    if attempt(exact, *small)[1] is None:
        return exact, small
    plain = _copied(model)
    failed = attempt(plain, args, kwargs)[1]
    if failed is not None:
        raise FoldError(
            f"{type(model).__name__} cannot be run on this example: {first_line(failed)}. Give one "
            "that it takes."
        ) from failed
    return plain, (args, kwargs)


def _double(value: Any) -> Any:
    floating = isinstance(value, Tensor) and value.is_floating_point()
    return value.double() if floating else value


def _rounded(exact: nn.Module, like: nn.Module) -> nn.Module:
    """Give every tensor the dtype that it had; new ones get that of the network."""
    dtypes = {name: t.dtype for name, t in (*like.named_parameters(), *like.named_buffers())}
    usual = next((p.dtype for p in like.parameters() if p.is_floating_point()), torch.float32)
    for name, tensor in (*exact.named_parameters(), *exact.named_buffers()):
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(dtypes.get(name, usual))
    return exact


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
