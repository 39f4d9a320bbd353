"""Which steps act on one state: equal shapes, or the same values laid out otherwise."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from stiffnet.trajectory.functions import PERMUTATIONS, SAME_VALUES
from stiffnet.trajectory.graph import Node
from stiffnet.trajectory.rule import Found
from stiffnet.trajectory.step import Step

Shape = tuple[int, ...]


def acts_on_one_state(found: Sequence[Found], steps: Sequence[Step]) -> bool:
    """Whether two steps that follow one another, with what was found of them, act on one state.

    Swin flattens its map in each block and MaxViT cuts it into windows: their values stay where
    they are on an axis of their own, the channels. A `PixelUnshuffle` leaves no axis as it was,
    whatever the sizes. Where other values lie between (a step inside of a branch), shapes decide.
    """
    shape, following = (step.shape for step in steps)
    if shape == following:
        return True
    before, after = found[0].total, found[1]
    if math.prod(shape) != math.prod(following) or before is None or after.total is None:
        return False
    state = after.total.operands[after.state_at.operand]
    assert state is not None
    way = way_between(before, state, sources)
    if way is not None:
        return _keeps_an_axis(before, way, steps[0].state_at.axis)
    alike = _merges(shape, following) or _merges(following, shape)
    return alike and not any(_lays_out_anew(node) for node in _between(before, state))


def _lays_out_anew(node: Node) -> bool:
    """As many entries, in another shape, by more than a rearrangement: a `PixelUnshuffle`."""
    if node.op in SAME_VALUES or node.op in PERMUTATIONS or node.op in ("argument", "call"):
        return False
    size = math.prod(node.shape)
    return any(n.shape != node.shape and math.prod(n.shape) == size for n in node.inputs)


def _between(start: Node, end: Node) -> list[Node]:
    """Every value on a way from one to another, in whatever code."""
    leads: dict[Node, bool] = {start: True}

    def look(node: Node) -> bool:
        if node not in leads:
            leads[node] = False
            sources = [n for n in (node.outer, node.inner, *node.inputs) if n is not None]
            ways = [look(n) for n in sources if n.time >= start.time]
            leads[node] = any(ways)
        return leads[node]

    look(end)
    return [node for node, yes in leads.items() if yes and node is not start]


def _merges(many: Shape, few: Shape) -> bool:
    """Whether axes can be put together to give those of another shape, in any order.

    >>> _merges((2, 784, 96), (784, 192)), _merges((16, 64, 64), (64, 32, 32))
    (True, False)
    """
    if not few:
        return all(size == 1 for size in many)
    if not many:
        return all(size == 1 for size in few)
    first, rest = many[0], many[1:]
    return any(
        _merges(rest, (*few[:i], *([size // first] if size > first else []), *few[i + 1 :]))
        for i, size in enumerate(few)
        if size % first == 0
    )


def way_between(start: Node, end: Node, sources: Callable[[Node], list[Node]]) -> list[Node] | None:
    """Values from `start` to `end`: each has the one before it among its `sources`."""
    seen: set[Node] = {end}
    stack = [[end]]
    while stack:
        way = stack.pop()
        node = way[-1]
        if node is start:
            return way[::-1]
        for source in sources(node):
            if source not in seen and source.time >= start.time:
                seen.add(source)
                stack.append([*way, source])
    return None


def handed_on(node: Node) -> list[Node]:
    """The value that a value is in other code, or that it rearranges; none if it was computed."""
    if same := node.outer or node.inner:
        return [same]
    rearranges = node.op in SAME_VALUES or node.op in PERMUTATIONS
    return list(node.inputs[:1]) if rearranges else []


def sources(node: Node) -> list[Node]:
    """Values of which a value is a rearrangement, or whose shape it has."""
    return handed_on(node) or [source for source in node.inputs if source.shape == node.shape]


def rearranged(start: Node, way: Sequence[Node]) -> Tensor | None:
    """Which entry of the first value each entry of the last one is; None if nobody can say.

    How the first value itself was made is no part of the way.
    """
    places = torch.arange(math.prod(start.shape)).reshape(start.shape)
    for node in way[1:]:
        if node.op in PERMUTATIONS:
            if len(node.order) != places.ndim:
                return None
            places = places.permute(node.order)
        if places.numel() != math.prod(node.shape):
            return None
        places = places.reshape(node.shape)
    return places


def _keeps_an_axis(start: Node, way: Sequence[Node], samples: int) -> bool:
    """Some axis of a state is an axis of the last value too, with its entries in their order."""
    places = rearranged(start, way)
    if places is None:
        return False
    strides = torch.empty(start.shape, device="meta").stride()
    return any(
        axis != samples and size > 1 and _lies_along_an_axis(places // stride % size, size)
        for axis, (size, stride) in enumerate(zip(start.shape, strides, strict=True))
    )


def _lies_along_an_axis(entry: Tensor, size: int) -> bool:
    """Whether the values are 0, 1, … along one axis and do not change along the others."""
    return any(
        length == size and bool((entry.movedim(axis, -1) == torch.arange(size)).all())
        for axis, length in enumerate(entry.shape)
    )
