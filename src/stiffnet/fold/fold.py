"""Folding: constant gates into weights, branches and norms into layers, all of it or nothing."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from stiffnet.errors import FoldError
from stiffnet.fold.caches import own_caches
from stiffnet.fold.copies import copied, in_one_memory, tensors_of
from stiffnet.fold.cost import costs
from stiffnet.fold.gates import fold_gates, gates_of
from stiffnet.fold.merge_norms import batch_norms, merge_norms
from stiffnet.fold.parallel_branches import fold_parallel_branches
from stiffnet.fold.proof import Proof
from stiffnet.nested import tensors_in
from stiffnet.network.deployed import Change, with_parallel_branches
from stiffnet.network.example import example_for
from stiffnet.results.fold import FoldReport, Refused, as_folded
from stiffnet.trajectory.batch import Example, as_arguments, samples_in
from stiffnet.trajectory.wrappers import unready

PASSES = 5  # of each network, for its time
STAGES = 4  # that a fold tells of, one after the other


@dataclass(frozen=True)
class FoldResult:
    """A network without what was folded into it, and what is known of the fold."""

    model: nn.Module
    report: FoldReport


def fold(
    model: nn.Module,
    example: Any = None,
    *,
    fuse: bool = False,
    branches: bool = True,
    passes: int = PASSES,
    on_stage: Callable[[], object] | None = None,
) -> FoldResult:
    """Fold away what costs time at inference and changes nothing that a network computes.

    Constant gates (`stiffnet.asr`) are multiplied into the layers that feed them and taken out:
    every block is an object of its own class again, and the state dict loads into the plain
    backbone. Modules that know how to join their branches (RepVGG, ACNet, ...) do so. The given
    network is not touched; the result is a copy that was computed in float64 and compared with it
    on the example, and on another size of image if it takes one. Code that
    runs for other sizes or values only is not checked.

    Args:
        model: A network in evaluation mode.
        example: One batch that it takes. Made up where it is not given.
        fuse: Also merge every batch norm into the convolution or linear layer before it. The
            result is no longer the backbone that was trained, and is faster.
        branches: Whether to join branches.
        passes: How often each of both networks is timed; 0 for not at all.
        on_stage: Called after each of the four stages, to show progress: gates, branches and
            norms, the comparison, the costs.

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
        raise FoldError(f"Only a network can be folded, and this is {model!r}. Build it first.")
    if reason := unready(model):
        raise FoldError(f"{type(model).__name__} is not ready to be folded: {reason}")
    if tied := in_one_memory(model):
        raise FoldError(
            f"{' and '.join(map(repr, tied))} are in the same memory, though they are different "
            "tensors, so that the state dict of a folded copy would not load. Make them one "
            "parameter (`b.weight = a.weight`), or clone one."
        )
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    kinds = {"cpu", *(device.type for device in devices)}
    with ExitStack() as usual:  # whatever the caller has switched on
        usual.enter_context(torch.random.fork_rng(devices=list(devices)))
        usual.enter_context(torch.inference_mode(False))
        for kind in kinds:
            usual.enter_context(torch.autocast(kind, enabled=False))
        usual.enter_context(own_caches(model))
        given = as_arguments(example_for(copied(model)) if example is None else example)
        if any(tensor.ndim and not len(tensor) for tensor in tensors_in(given)):
            raise FoldError("The example is empty, and proves nothing. Give at least one sample.")
        tell = on_stage or (lambda: None)
        return _fold(model, given, fuse=fuse, branches=branches, passes=passes, tell=tell)


def _fold(
    model: nn.Module,
    example: Example,
    *,
    fuse: bool,
    branches: bool,
    passes: int,
    tell: Callable[[], object],
) -> FoldResult:
    constant, varying = gates_of(model)
    places = [sits.name for sits in constant]
    places += with_parallel_branches(model) if branches else []
    places += batch_norms(model) if fuse else []
    proof = Proof(model, example, places, closely=fuse or bool(constant))
    work, reading = proof.work, proof.reading
    gates = fold_gates(work, constant, reading) if reading and constant else []
    refused = [
        Refused(sits.name, f"the step size of {sits.module} depends on the input")
        for sits in varying
    ]
    now = tensors_of(work) if gates else {}
    gated = {name: tensor.detach().clone() for name, tensor in now.items()}
    tell()
    joined: list[Change] = []
    if branches:
        work, joined, left = fold_parallel_branches(work, [item.name for item in refused])
        refused += [Refused(path, reason) for path, reason in left.items()]

    def prove(merged: list[Change]) -> None:
        proof.hold(work, gates, gated, [*joined, *merged])

    merged: list[Change] = []
    if fuse:
        as_read = None if gates or joined else reading
        merging = merge_norms(work, proof.small, prove, as_read)
        merged = merging.changes
        refused += [Refused(path, reason) for path, reason in merging.left.items()]
    changes = [*joined, *merged]
    folded = [*gates, *(as_folded(change) for change in changes)]
    tell()
    if not folded:
        raise FoldError(_nothing(model, refused, varying=bool(varying), fuse=fuse))
    if not merged:
        prove([])
    tell()
    images = samples_in(example) or 1
    before, after = costs((proof.original, proof.tried), example, passes=passes)
    tell()
    report = FoldReport(
        tuple(folded), tuple(refused), proof.scaled_error, proof.exact_error, before, after,
        images, tuple(changes), proof.places,
    )  # fmt: skip
    return FoldResult(proof.made, report)


def _nothing(model: nn.Module, refused: list[Refused], *, varying: bool, fuse: bool) -> str:
    name = type(model).__name__
    if refused:
        first = f"{refused[0].name!r}: {refused[0].reason}"
        more = f", and {len(refused) - 1} more like it" if len(refused) > 1 else ""
        advice = (
            "Train it with `stiffnet.asr(...)`, or hold its attention constant with "
            "`stiffnet.freeze_attention`."
            if varying
            else "It stays as it is."
        )
        return f"Nothing in {name} can be folded ({first}{more}). {advice}"
    also = "" if fuse else "; `fuse=True` would merge its norms"
    return (
        f"Nothing in {name} can be folded: no constant gate is attached and no branches are left, "
        f"as in a network that was folded already{also}."
    )
