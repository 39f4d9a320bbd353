"""Batch norms merged into the convolutions and linear layers before them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.fold.commute import Way, ways
from stiffnet.fold.factors import Factors, factors, is_rearrangement
from stiffnet.fold.reading import Op, Reading, Refusal, frames_of, has_hooks, read
from stiffnet.network.deployed import NORMS, Change, bias_of, remove_norm
from stiffnet.trajectory.graph import Frame, Node

_LAYERS = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "linear")  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Merge:
    norm: str
    layer: nn.Module
    path: str
    scale: Factors
    shift: Tensor


def merge_norms(model: nn.Module, args: Any, kwargs: Any) -> tuple[list[Change], dict[str, str]]:
    """Merge every batch norm that directly follows a layer.

    Args:
        model: A network in float64 and in evaluation mode; it is changed.
        args: What to run it on.
        kwargs: The same, by name.

    Returns:
        What was merged, and why the other norms were not, by their paths.
    """
    changes: list[Change] = []
    while True:
        reading = read(model, args, kwargs)
        merges: list[_Merge] = []
        refused: dict[str, str] = {}
        for op in list(reading.ops.values()):
            if op.name == "batch_norm":
                try:
                    merges.append(_planned(op, reading))
                except Refusal as reason:
                    refused[op.where] = str(reason)
        if not merges:
            return changes, refused
        for merge in merges:
            _merge(merge)
            remove_norm(model, merge.norm)
            changes.append(Change("norm", merge.norm, merge.path))


def _planned(op: Op, reading: Reading) -> _Merge:
    norm: Any = op.node.frame.module
    path = op.where
    if type(norm) not in NORMS:
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
        raise Refusal(f"{way.layer.name} is called by other code than its own")
    if not _takes_a_bias(layer, way.layer.node.frame):
        raise Refusal(f"{way.layer.name} has no place for a bias")
    shifts = factors(way, source.shape, 1, shift).values
    return _Merge(path, layer, way.layer.node.frame.path, found, shifts)


def _takes_a_bias(layer: Any, frame: Frame) -> bool:
    """Whether a layer adds its bias; one without is given one, to see what it does on zeros."""
    if "bias" not in layer._parameters:
        return False
    if layer.bias is not None:
        return True
    shape = next(node.shape for node in frame.nodes if node.op == "argument")
    bias = bias_of(layer)
    try:
        with torch.no_grad():
            bias.fill_(1)
            return bool((layer(torch.zeros(shape).to(bias)) == 1).all())
    except Exception:  # foreign code, called otherwise than it was
        return False
    finally:
        layer.bias = None


def _only_way(source: Node, op: Op, reading: Reading) -> Way:
    found = ways(source, reading, op.node)
    if len(found) != 1:
        raise Refusal("it normalises a sum or several parts")
    (way,) = found
    if way.layer.node.op not in _LAYERS:
        raise Refusal(f"it follows {way.layer.name}, which is no convolution or linear layer")
    if way.one_sided:
        raise Refusal(f"a `{way.one_sided[0]}` lies between {way.layer.name} and it")
    return way


def _merge(merge: _Merge) -> None:
    for holder in merge.scale.layer.holders:
        holder.scale(merge.scale.values)
    bias = bias_of(merge.layer)
    with torch.no_grad():
        bias.add_(merge.shift.to(bias))
