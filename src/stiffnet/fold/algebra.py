"""Which operations can hold a factor per channel in their weights, and how it is multiplied in.

Written for functions and not for module classes: a layer is whatever calls `conv2d` with one of the
network's own parameters, in timm, torchvision or a user's code.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torchvision.ops import FrozenBatchNorm2d

from stiffnet.attention.asr import ConstantIEBN
from stiffnet.fold.operations import Op, Reading, Refusal
from stiffnet.trajectory.graph import Node


@dataclass(frozen=True, eq=False)
class Holder:
    """One tensor of the network that takes factors, and how it is laid out for them."""

    tensor: Tensor
    name: str
    view: tuple[int, ...]
    """Shape in which the tensor is seen."""
    units: tuple[int, ...]
    """Shape in which the factors are seen, so that they broadcast over it."""

    def scale(self, factor: Tensor) -> None:
        """Multiply the factors in, in place; the tensor stays the object that it is."""
        seen = self.tensor.detach().double().reshape(self.view)
        scaled = seen * factor.to(seen).reshape(self.units)
        with torch.no_grad():
            self.tensor.copy_(scaled.reshape(self.tensor.shape))


@dataclass(frozen=True, eq=False)
class Layer:
    """An operation whose output can be scaled, unit by unit, by scaling its weights."""

    node: Node
    """Its output."""
    layout: tuple[int, ...]
    """Shape in which the units broadcast over the output, from the last axis backwards."""
    holders: tuple[Holder, ...]

    @property
    def units(self) -> int:
        """How many numbers the output can be scaled by."""
        return math.prod(self.layout)

    @property
    def name(self) -> str:
        """What is changed, for people."""
        first = self.holders[0].name
        return first.rpartition(".")[0] if first.endswith("weight") else first


_COMPUTED = "its {} is computed again in every pass (parametrised or standardised)"


def _own(reading: Reading, tensor: Any, what: str) -> str:
    """Name of a tensor that is the network's own, has one name and is used once."""
    name = _named(reading, tensor, what)
    if reading.uses[id(tensor)] > 1:
        raise Refusal(f"{name!r} is used {reading.uses[id(tensor)]} times in one pass")
    return name


def _named(reading: Reading, tensor: Any, what: str) -> str:
    """Name of a tensor that is the network's own, is saved with it and has one name."""
    names = reading.names.get(id(tensor), []) if isinstance(tensor, Tensor) else []
    if not names:
        raise Refusal(_COMPUTED.format(what))
    if len(names) > 1:
        raise Refusal(f"its {what} is tied: {' and '.join(map(repr, names))} are one tensor")
    if id(tensor) in reading.unsaved:
        raise Refusal(f"{names[0]!r} is not in the network's state dict")
    return names[0]


def _per_channel(
    reading: Reading, op: Op, *, at: int, axis: int = 0, behind: int | None = None, of: str = ""
) -> Layer:
    """A layer with one unit a channel, whose arguments from number `at` are weight and bias.

    The weight has the channels along `axis`: the first, or the second of a transposed convolution,
    the first of which is cut into groups. In the output, `behind` axes come behind the channels, as
    many as a kernel has if not given.
    """
    weight, bias = _weight(op, at, f"{of}weight"), op.given(at + 1, f"{of}bias")
    groups = int(op.given(6, "groups", 1)) if axis else 1
    shape = tuple(weight.shape)
    behind = len(shape) - 2 if behind is None else behind
    channels = shape[axis] * groups
    view, units = shape, [1] * len(shape)
    units[axis] = channels
    if groups > 1:
        view = (groups, shape[0] // groups, *shape[1:])
        units = [groups, *units]
        units[axis + 1] = shape[axis]
    holders = [Holder(weight, _own(reading, weight, "weight"), view, tuple(units))]
    if bias is not None:
        holders.append(Holder(bias, _own(reading, bias, "bias"), tuple(bias.shape), (channels,)))
    return Layer(op.node, (channels, *[1] * behind), tuple(holders))


def _weight(op: Op, position: int, name: str = "weight") -> Tensor:
    """Return the weight that an operation was given, if it is one at all."""
    weight = op.given(position, name)
    if weight is None:
        raise Refusal("it has no weight that could hold a factor")
    if not isinstance(weight, Tensor):
        raise Refusal(_COMPUTED.format("weight"))
    return weight


def _norm(reading: Reading, op: Op, *, weight_at: int) -> Layer:
    layer = _per_channel(reading, op, at=weight_at, behind=len(op.node.shape) - 2)
    if op.name == "batch_norm" and op.given(1, "running_mean") is None:
        raise Refusal("it has no running statistics, so that images depend on their batch")
    return layer


def _over_last_axes(reading: Reading, op: Op, *, bias_at: int | None) -> Layer:
    weight = _weight(op, 2)
    shape = tuple(weight.shape)
    holders = [Holder(weight, _own(reading, weight, "weight"), shape, shape)]
    bias = None if bias_at is None else op.given(bias_at, "bias")
    if bias is not None:
        holders.append(Holder(bias, _own(reading, bias, "bias"), shape, shape))
    return Layer(op.node, shape, tuple(holders))


def _attention(reading: Reading, op: Op) -> Layer:
    if op.result != 0:
        raise Refusal("these are attention weights, not what the attention gives")
    return _per_channel(reading, op, at=11, behind=0, of="out_proj_")


AFFINE: dict[str, Callable[[Reading, Op], Layer]] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "linear"), partial(_per_channel, at=1)),
    **dict.fromkeys(
        ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        partial(_per_channel, at=1, axis=1),
    ),
}
"""Convolutions and linear layers: a product with their weight, and a bias."""

LAYERS = AFFINE | {
    "batch_norm": partial(_norm, weight_at=3),
    "instance_norm": partial(_norm, weight_at=3),
    "group_norm": partial(_norm, weight_at=2),
    "layer_norm": partial(_over_last_axes, bias_at=3),
    "rms_norm": partial(_over_last_axes, bias_at=None),
    "multi_head_attention_forward": _attention,
}
"""The operations that hold a factor, by the names of their functions."""


def whole_norm(reading: Reading, node: Node, norm: FrozenBatchNorm2d | ConstantIEBN) -> Layer:
    """A batch norm whose own code hides that it is one: of buffers, or with a constant gate."""
    shape = tuple(norm.weight.shape)
    holders = [
        Holder(tensor, _named(reading, tensor, what), shape, shape)
        for tensor, what in ((norm.weight, "weight"), (norm.bias, "bias"))
    ]
    if sum(frame.module is norm for frame in reading.frames) > 1:
        raise Refusal(f"{node.called.path if node.called else 'it'} is called more than once")
    return Layer(node, (*shape, *(1,) * (len(node.shape) - 2)), tuple(holders))


def parameter_layer(reading: Reading, op: Op, tensor: nn.Parameter) -> Layer:
    """A parameter that is multiplied with a value (LayerScale) or added to it."""
    shape = tuple(tensor.shape)
    return Layer(op.node, shape, (Holder(tensor, _own(reading, tensor, "factor"), shape, shape),))


def is_parameter(value: object, reading: Reading) -> TypeGuard[nn.Parameter]:
    """Whether a value is one of the network's parameters, with more than one number."""
    return isinstance(value, nn.Parameter) and id(value) in reading.names and value.numel() > 1
