"""Batch norms merged into the convolutions and linear layers before them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.batch_norms import MERGEABLE
from stiffnet.errors import FoldError
from stiffnet.fold.algebra import AFFINE
from stiffnet.fold.commute import Way, ways
from stiffnet.fold.factors import Factors, factors, is_rearrangement
from stiffnet.fold.operations import Op, Reading, Refusal, frames_of, read
from stiffnet.network.deployed import Change, bias_of, remove_norm
from stiffnet.network.gated_block import has_hooks
from stiffnet.trajectory.batch import Example
from stiffnet.trajectory.graph import Frame, Node

Prove = Callable[[list[Change]], object]

_PLAIN = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d,
    nn.ConvTranspose3d, nn.Linear)  # fmt: skip
"""Layers that are known to add a bias which they are given; others are tried."""


@dataclass(frozen=True, eq=False)
class _Merge:
    norm: str
    layer: nn.Module
    path: str
    scale: Factors
    shift: Tensor


@dataclass(eq=False)
class Merging:
    """Norms that were merged, in their order, and why others were not."""

    changes: list[Change] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    spoilt: dict[str, str] = field(default_factory=dict)  # those with which the proof failed


def merge_norms(
    model: nn.Module, example: Example, prove: Prove, reading: Reading | None = None
) -> Merging:
    """Merge every batch norm of a network in float64 that directly follows a layer, in place.

    `prove` raises a FoldError for changes after which the network does not give what it gave, and
    those norms stay; `reading` is a pass of the network, where there was one already.
    """
    done = Merging()
    while True:
        reading = reading or read(model, example)
        merges: list[_Merge] = []
        done.left = {}
        for op in list(reading.ops.values()):
            if op.name == "batch_norm":
                try:
                    if op.where in done.spoilt:
                        raise Refusal(done.spoilt[op.where])
                    merges.append(_planned(op, reading))
                except Refusal as reason:
                    done.left[op.where] = str(reason)
        if not merges:
            return done
        before, reading = len(done.changes), None
        _merge_those_that_hold(model, merges, done, prove)
        done.left |= done.spoilt
        if len(done.changes) == before or not done.left:
            return done


def batch_norms(model: nn.Module) -> list[str]:
    """Paths of the norms that could be merged, as far as their class says."""
    return [path for path, module in model.named_modules() if type(module) in MERGEABLE]


def _merge_those_that_hold(
    model: nn.Module, merges: Sequence[_Merge], done: Merging, prove: Prove
) -> None:
    """Merge all; where that changes the result, halves of them, down to the norms that do."""
    undo = [_merge(model, merge) for merge in merges]
    together = [*done.changes, *(Change("norm", merge.norm, merge.path) for merge in merges)]
    try:
        prove(together)
    except FoldError as error:
        for back in reversed(undo):
            back()
        if len(merges) == len(together):
            prove([])  # or it is not the norms
        if len(merges) == 1:
            done.spoilt[merges[0].norm] = f"merging it fails: {str(error).partition('. ')[0]}"
            return
        half = len(merges) // 2
        for part in (merges[:half], merges[half:]):
            _merge_those_that_hold(model, part, done, prove)
    else:
        done.changes = together


def _planned(op: Op, reading: Reading) -> _Merge:
    norm: Any = op.node.frame.module
    path = op.where
    if type(norm) not in MERGEABLE:
        raise Refusal(f"{type(norm).__name__} may do more than a batch norm")
    if norm.running_mean is None or norm.running_var is None:
        raise Refusal("it has no running statistics")
    if has_hooks(norm):
        raise Refusal("it has forward hooks, which would be lost with it")
    if len(list(frames_of(reading, norm))) > 1:
        raise Refusal("it is called more than once in one pass")
    tensors = [*norm.parameters(recurse=False), *norm.buffers(recurse=False)]
    if any(len(reading.names[id(tensor)]) > 1 for tensor in tensors):
        raise Refusal("its weights are tied to another's")
    source = op.given(0, "input")
    assert isinstance(source, Node)
    way = _only_way(source, op, reading)
    deviation = torch.sqrt(norm.running_var.double() + norm.eps)
    scale = torch.ones_like(deviation) if norm.weight is None else norm.weight.detach().double()
    scale = scale / deviation
    shift = torch.zeros_like(scale) if norm.bias is None else norm.bias.detach().double()
    shift = shift - norm.running_mean.double() * scale
    found = factors(way, source.shape, 1, scale)
    if way.layer.units != len(scale) or not is_rearrangement(way):
        raise Refusal(f"something between {way.layer.name} and it does not keep a shift")
    layer = way.layer.node.frame.module
    if getattr(layer, "weight", None) is not way.layer.holders[0].tensor:
        raise Refusal(f"{way.layer.name} is not called by its own code")
    if not _takes_a_bias(layer, way.layer.node.frame):
        raise Refusal(f"{way.layer.name} has no place for a bias")
    shifts = factors(way, source.shape, 1, shift).values
    return _Merge(path, layer, way.layer.node.frame.path, found, shifts)


def _takes_a_bias(layer: Any, frame: Frame) -> bool:
    """Whether a layer adds its bias; one without is given one, to see what it does on zeros."""
    if "bias" not in layer._parameters:
        return False
    if layer.bias is not None or type(layer) in _PLAIN:
        return True
    shape = next(node.shape for node in frame.nodes if node.op == "argument")
    bias = bias_of(layer)
    try:
        with torch.no_grad():
            bias.fill_(1)
            return bool((layer(torch.zeros(shape).to(bias)) == 1).all())
    except Exception:  # foreign code, not called as the network does
        return False
    finally:
        layer.bias = None


def _only_way(source: Node, op: Op, reading: Reading) -> Way:
    found = ways(source, reading, op.node)
    if len(found) != 1:
        raise Refusal("it normalises a sum or several parts")
    (way,) = found
    if way.layer.node.op not in AFFINE:
        raise Refusal(f"it follows {way.layer.name}, which is not a convolution or linear layer")
    if way.one_sided:
        raise Refusal(f"a `{way.one_sided[0]}` is between {way.layer.name} and it")
    return way


def _merge(model: nn.Module, merge: _Merge) -> Callable[[], None]:
    """Merge a norm, and return what takes that back."""
    layer: Any = merge.layer
    norm, bias = model.get_submodule(merge.norm), layer.bias
    tensors = [holder.tensor for holder in merge.scale.layer.holders]
    kept = [tensor.detach().clone() for tensor in tensors]

    def back() -> None:
        model.set_submodule(merge.norm, norm)
        layer.bias = bias
        with torch.no_grad():
            for tensor, content in zip(tensors, kept, strict=True):
                tensor.copy_(content)

    for holder in merge.scale.layer.holders:
        holder.scale(merge.scale.values)
    with torch.no_grad():
        there = bias_of(layer)
        there.add_(merge.shift.to(there))
    remove_norm(model, merge.norm)
    return back
