"""What a layer must be scaled by so that a value is: proved on random numbers.

The operations between the layer and the value are run again, on random numbers with and without
random factors on the layer, and must give the same factors back. So reshapes, windows, rolls, crops
and pools need no rules of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stiffnet.fold.algebra import Layer
from stiffnet.fold.commute import Way
from stiffnet.fold.operations import Op, Refusal, data_in, run_again
from stiffnet.trajectory.functions import ADDITIONS

CLOSE = 1e-9
"""Of factors that come back through float64 operations, against those that were put in: far above
rounding, far below the distance of two random factors."""


@dataclass(frozen=True, eq=False)
class Factors:
    """What the units of a layer must be scaled by, so that a value is."""

    layer: Layer
    values: Tensor
    units: Tensor
    """Which of the units have a part in the value; the factors of the others are 1."""
    channels: Tensor
    """In which channels of the value the layer has a part."""


def all_factors(
    found: Sequence[Way], shape: tuple[int, ...], axis: int, wanted: Tensor
) -> list[Factors]:
    """Find the factors of every layer on some ways that scale a value by `wanted`, or refuse."""
    by_layer: dict[int, Factors] = {}
    for way in found:
        new = factors(way, shape, axis, wanted)
        key = id(way.layer.holders[0].tensor)
        by_layer[key] = _both(by_layer[key], new) if key in by_layer else new
    for part in by_layer.values():
        if not bool(part.units.any()):
            raise Refusal(f"nothing of what {part.layer.name} gives reaches it")
    reached = torch.stack([part.channels for part in by_layer.values()]).any(0)
    if not bool(reached.all()):
        raise Refusal("some of its channels come from no layer")
    return list(by_layer.values())


def _both(one: Factors, other: Factors) -> Factors:
    """Join what two ways from one layer ask of it."""
    shared = one.units & other.units
    if not torch.equal(one.values[shared], other.values[shared]):
        raise Refusal(f"one channel of {one.layer.name} goes into several channels of the gate")
    values = torch.where(one.units, one.values, other.values)
    return Factors(one.layer, values, one.units | other.units, one.channels | other.channels)


def factors(way: Way, shape: tuple[int, ...], axis: int, wanted: Tensor) -> Factors:
    """Find the factors of a layer that scale a value by `wanted`, channel by channel, or refuse."""
    wanted = wanted.detach().double().cpu()
    if way.one_sided and bool((wanted < 0).any()):
        count = int((wanted < 0).sum())
        raise Refusal(
            f"its gate is negative for {count} of {len(wanted)} channels, and a "
            f"`{way.one_sided[0]}` is between it and {way.layer.name}"
        )
    unit, part = _units(way, shape, axis)
    values = torch.ones(way.layer.units, dtype=torch.float64)
    touched = torch.zeros(way.layer.units, dtype=torch.bool)
    values[unit[part]], touched[unit[part]] = wanted[part], True
    if not torch.equal(values[unit[part]], wanted[part]):
        raise Refusal(f"one channel of {way.layer.name} goes into several channels of the gate")
    return Factors(way.layer, values, touched, part)


def _units(way: Way, shape: tuple[int, ...], axis: int) -> tuple[Tensor, Tensor]:
    """Which unit of its layer every channel of a value is scaled by, and in which it has a part."""
    channels = shape[axis]
    behind = len(shape) - 1 - axis % len(shape)
    if not way.path and way.layer.layout == (channels, *[1] * behind):
        return torch.arange(channels), torch.ones(channels, dtype=torch.bool)
    random = torch.Generator().manual_seed(0)
    units = 1 + torch.rand(way.layer.units, generator=random, dtype=torch.float64)
    pairs = [_replayed(way, units, random, sign) for sign in (1, -1)]  # a ReLU stops one of them
    if pairs[0][0].shape != shape:
        raise Refusal(f"what {way.layer.name} gives is broadcast before the gate")
    plain, scaled = (
        torch.cat([value.movedim(axis, 0).flatten(1) for value in values], 1)
        for values in zip(*pairs, strict=True)
    )
    size = plain.square().sum(1)
    part = size > 0
    ratio = (plain * scaled).sum(1) / torch.where(part, size, 1)
    rest = (scaled - ratio[:, None] * plain).abs().amax(1)
    nearest = (ratio[:, None] - units[None, :]).abs().argmin(1)
    if (
        bool((rest > CLOSE * plain.abs().amax()).any())
        or bool((scaled[~part] != 0).any())
        or bool(((ratio - units[nearest]).abs() > CLOSE)[part].any())
    ):
        raise Refusal(f"channels are mixed between {way.layer.name} and the gate")
    return nearest, part


def is_rearrangement(way: Way) -> bool:
    """Whether the operations of a way keep what is the same everywhere: then they keep a shift.

    That is seen on ones, of the example's size. What keeps them there may not on other sizes where
    zeros come in only for some of them, and is refused.
    """
    value = torch.ones(way.layer.node.shape, dtype=torch.float64)
    for step in way.path:
        if step.alone or len(data_in(step.op)) > 1 or _goes_by_size(step.op):
            return False
        value = run_again(step.op, {step.source: value})
    return bool(((value - 1).abs() <= CLOSE).all())


def _goes_by_size(op: Op) -> bool:
    """Whether an operation adds zeros, or numbers up, for images of some sizes only."""
    if op.name in ("pad", "constant_pad_nd"):
        return op.name != "pad" or op.given(2, "mode", "constant") == "constant"
    if op.name in ("avg_pool2d", "avg_pool3d"):
        return bool(op.given(4, "ceil_mode", False)) and bool(op.given(6, "divisor_override"))
    return op.name in ("sum", "fold")


def _replayed(way: Way, units: Tensor, random: torch.Generator, sign: int) -> tuple[Tensor, Tensor]:
    """Run the operations of a way on random numbers, without and with factors on the layer."""

    def drawn(shape: tuple[int, ...]) -> Tensor:
        return 0.5 + torch.rand(shape, generator=random, dtype=torch.float64)

    first = sign * drawn(way.path[0].source.shape if way.path else way.layer.node.shape)
    if way.layer.node.op in ADDITIONS:  # a parameter that is added: its part alone
        first = sign * drawn(way.layer.layout).expand(way.layer.node.shape)
    plain, scaled = first, first * units.reshape(way.layer.layout)
    for step in way.path:
        others = {
            node: torch.zeros(node.shape, dtype=torch.float64) if step.alone else drawn(node.shape)
            for node in data_in(step.op)
            if node is not step.source
        }
        plain, scaled = (run_again(step.op, {**others, step.source: v}) for v in (plain, scaled))
    return plain, scaled
