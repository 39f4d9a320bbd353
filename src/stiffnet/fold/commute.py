"""From a value back to the layers that made it, through whatever commutes with a factor a channel.

Which functions may commute is read off their names here, and that they do is proved in `factors`.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeGuard

import torch
from torch import nn
from torchvision.ops import FrozenBatchNorm2d

from stiffnet.attention import Attention
from stiffnet.attention.asr import ConstantGate, ConstantIEBN
from stiffnet.fold.algebra import LAYERS, Layer, is_parameter, parameter_layer, whole_norm
from stiffnet.fold.operations import Op, Reading, Refusal, run_again
from stiffnet.trajectory.functions import ADDITIONS, SAME_VALUES
from stiffnet.trajectory.graph import Frame, Node

CASTS = frozenset((
    "to", "type", "type_as", "float", "half", "bfloat16", "double", "cpu", "cuda", "detach",
    "clone", "contiguous", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_dropout",
    "alpha_dropout", "feature_alpha_dropout",
))  # fmt: skip
"""Functions that change no number, in evaluation."""

SELECTIONS = frozenset((
    "__getitem__", "narrow", "select", "index_select", "chunk", "split", "tensor_split", "unbind",
))  # fmt: skip

MOVES = SELECTIONS | SAME_VALUES | frozenset((
    "roll", "flip", "rot90", "pad", "constant_pad_nd", "interpolate", "upsample", "avg_pool1d",
    "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
    "mean", "sum", "neg", "neg_", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle",
    "native_channel_shuffle", "__get__", "swapdims", "moveaxis", "unfold", "fold", "atleast_1d",
))  # fmt: skip
"""Linear functions of their first argument."""

ONE_SIDED = frozenset((
    "relu", "relu_", "leaky_relu", "leaky_relu_", "prelu", "max_pool1d", "max_pool2d",
    "max_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "amax",
))  # fmt: skip
"""Functions that commute with a factor that is not negative."""

PRODUCTS = frozenset(("mul", "mul_", "div", "div_", "true_divide", "matmul", "bmm", "einsum"))
JOINS = frozenset(("cat", "concat", "concatenate", "stack"))

MOST = 256
"""Ways to one value: sums of sums of shared values multiply them."""


@dataclass(frozen=True, eq=False)
class Through:
    """One operation on the way from a layer to a value."""

    op: Op
    source: Node
    """The value that the way goes through."""
    alone: bool
    """Other values that the operation is given are zero for this way: it adds or joins."""


Use = tuple[Node, Node | Frame]
"""A value, and one thing that it goes into."""


@dataclass(frozen=True, eq=False)
class Way:
    """A layer, and the operations that lead from its output to a value."""

    layer: Layer
    path: tuple[Through, ...] = ()
    uses: tuple[Use, ...] = ()
    """Every value on the way, and where the way goes on from it."""

    @property
    def one_sided(self) -> list[str]:
        """The functions on it that need factors that are not negative."""
        return [step.op.name for step in self.path if step.op.name in ONE_SIDED]


def ways(value: Node, reading: Reading, user: Node | Frame) -> list[Way]:
    """Every way from a layer to a value that goes on into a gate or a norm, the `user`.

    Together they make all of the value, and nothing else.

    Raises:
        Refusal: If one of them does not lead to a layer that can hold a factor, or a value on one
            goes elsewhere too.
    """
    found = list(itertools.islice(_back(value, user, reading), MOST + 1))
    if len(found) > MOST:
        raise Refusal(f"more than {MOST} ways lead to it")
    _refuse_other_uses(found, reading)
    return found


def _back(value: Node, user: Node | Frame, reading: Reading) -> Iterator[Way]:
    for way in _made_of(value, reading):
        yield replace(way, uses=((value, user), *way.uses))


def _made_of(value: Node, reading: Reading) -> Iterator[Way]:
    if value.op == "argument":
        if value.outer is None:
            raise Refusal("there is no layer between it and the network's input")
        yield from _back(value.outer, value.frame, reading)
    elif value.op == "call":
        assert value.called is not None
        module = value.called.module
        if isinstance(module, FrozenBatchNorm2d) or _is_plain(module):
            yield Way(whole_norm(reading, value, module))
        elif isinstance(module, Attention) and not isinstance(module, ConstantGate):
            raise Refusal(
                f"it comes after {_module(value)}, whose step size depends on the input; "
                "attach it before that one"
            )
        elif value.inner is None:
            raise Refusal(f"what {_module(value)} does inside cannot be seen")
        else:
            yield from _back(value.inner, value.called, reading)
    else:
        yield from _through(reading.ops[value], reading)


def _is_plain(module: nn.Module) -> TypeGuard[ConstantIEBN]:
    """Whether a module is a norm with a constant gate, and nothing behind it."""
    return isinstance(module, ConstantIEBN) and all(
        isinstance(part, nn.Identity) for part in (module.drop, module.act)
    )


def _through(op: Op, reading: Reading) -> Iterator[Way]:
    if op.name in LAYERS:
        try:
            layer = LAYERS[op.name](reading, op)
        except Refusal as reason:
            raise Refusal(f"{op.where or 'the network'} cannot hold it: {reason}") from reason
        yield Way(layer)
    elif op.name in ADDITIONS:
        yield from _addends(op, reading)
    elif op.name in JOINS:
        for part in op.given(0, "tensors"):
            if not isinstance(part, Node):
                raise Refusal(f"a constant is joined to it in {op.where or 'the network'}")
            yield from _go_on(op, part, reading, alone=True)
    elif op.name in PRODUCTS:
        yield from _factor(op, reading)
    elif op.name == "scaled_dot_product_attention":
        yield from _go_on(op, op.given(2, "value"), reading)
    elif op.name in MOVES or op.name in ONE_SIDED or op.name in CASTS:
        given = (value for value in (*op.args, *op.kwargs.values()) if isinstance(value, Node))
        yield from _go_on(op, next(given), reading)
    else:
        raise Refusal(f"`{op.name}` in {op.where or 'the network'} does not commute with a factor")


def _go_on(op: Op, source: object, reading: Reading, *, alone: bool = False) -> Iterator[Way]:
    if not isinstance(source, Node):
        raise Refusal(f"`{op.name}` in {op.where or 'the network'} takes it from a constant")
    step = () if op.name in CASTS else (Through(op, source, alone),)
    for way in _back(source, op.node, reading):
        yield replace(way, path=(*way.path, *step))


def _addends(op: Op, reading: Reading) -> Iterator[Way]:
    """Both operands of a sum are scaled; a constant one must be a parameter."""
    for operand in dict.fromkeys(_operands(op)):
        if isinstance(operand, Node):
            yield from _go_on(op, operand, reading, alone=True)
        elif is_parameter(operand, reading):
            yield Way(parameter_layer(reading, op, operand))
        elif not (isinstance(operand, int | float) and operand == 0):
            raise Refusal(f"a constant is added to it in {op.where or 'the network'}")


def _factor(op: Op, reading: Reading) -> Iterator[Way]:
    """One operand of a product is scaled: a parameter if there is one (LayerScale)."""
    operands = _operands(op)
    if op.name in ("mul", "mul_"):
        for operand in operands:
            if is_parameter(operand, reading):
                with suppress(Refusal):
                    yield Way(parameter_layer(reading, op, operand))
                    return
    candidates = operands[:1] if op.name in ("div", "div_", "true_divide") else operands
    reasons = []
    for operand in candidates:
        if isinstance(operand, Node):
            try:
                found = list(_go_on(op, operand, reading))
            except Refusal as reason:
                reasons.append(str(reason))
            else:
                yield from found
                return
    raise Refusal(reasons[0] if reasons else f"`{op.name}` in {op.where} has no part that varies")


def _operands(op: Op) -> list[object]:
    named = [op.kwargs[name] for name in ("input", "other", "mat2") if name in op.kwargs]
    given = op.args[1:] if op.name == "einsum" else op.args
    return [*given, *named][:2]


def _refuse_other_uses(found: Sequence[Way], reading: Reading) -> None:
    """Refuse a value that goes elsewhere than along the ways, unless another part of it does."""
    on_ways: dict[Node, list[Node | Frame]] = defaultdict(list)
    for way in found:
        for value, user in way.uses:
            if user not in on_ways[value]:
                on_ways[value].append(user)
    for value, users in on_ways.items():
        if value in reading.overwritten:
            raise Refusal(f"what comes out of {_module(value)} is changed in place by other code")
        others = list(reading.users(value))
        for user in users:
            if user in others:
                others.remove(user)
        for other in others:
            if not all(_disjoint(value, user, other, reading) for user in users):
                raise Refusal(
                    f"what comes out of {_module(value)} is used elsewhere too, in {_user(other)}"
                )


def _disjoint(value: Node, one: Node | Frame, other: Node | Frame, reading: Reading) -> bool:
    """Whether two users take different parts of a value, as queries and keys do."""
    taken = []
    for user in (one, other):
        if not isinstance(user, Node) or user.op not in SELECTIONS or user not in reading.ops:
            return False
        entries = torch.arange(math.prod(value.shape)).reshape(value.shape)
        part = run_again(reading.ops[user], {value: entries})
        taken.append(set(part.flatten().tolist()))
    return not taken[0] & taken[1]


def _module(value: Node) -> str:
    frame = value.called or value.frame
    return frame.path or "the network"


def _user(user: Node | Frame) -> str:
    if isinstance(user, Frame):
        return user.path or "the network's output"
    return f"`{user.op}` of {user.frame.path or 'the network'}"
