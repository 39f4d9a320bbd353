"""Ways between values: what came from what in one frame, and what scaled it just before a sum."""

import math
from collections.abc import Iterator

from stiffnet.trajectory.functions import ADDITIONS, SAME_VALUES, SCALINGS
from stiffnet.trajectory.graph import Node
from stiffnet.trajectory.step import ATTACHED


def last_common(left: Node, right: Node) -> Node | None:
    """The last value that both came from, if all they share lies at or before it."""
    common = left.before & right.before
    if not common:
        return None
    fork = left.frame.nodes[common.bit_length() - 1]
    return fork if fork.before == common else None


def stream_of(node: Node) -> list[Node]:
    """`node` and what it is but for rearrangements and earlier additions, nearest first."""
    seen, queue = [], [node]
    while queue:
        current = queue.pop(0)
        seen.append(current)
        if current.op in SAME_VALUES:
            queue.append(current.inputs[0])
        elif current.op in ADDITIONS:
            queue.extend(n for n in current.operands if n is not None and n.shape == node.shape)
    return seen


def precedes(earlier: Node, later: Node) -> bool:
    """Whether a value went into another."""
    return earlier is not later and bool(later.before >> earlier.index & 1)


def reaches(earlier: Node, later: Node) -> bool:
    """Whether a value is another one, or went into it."""
    return earlier is later or precedes(earlier, later)


def between(start: Node, end: Node) -> list[Node]:
    """Values on the ways from `start` (without it) to `end` (with it)."""
    return [n for n in start.frame.nodes if precedes(start, n) and (n is end or precedes(n, end))]


def weight_between(start: Node, end: Node) -> int:
    """How many non-linear functions lie between two values."""
    return sum(node.weight for node in between(start, end))


def same_values(node: Node) -> Node:
    """A value before it was rearranged."""
    while node.op in SAME_VALUES:
        node = node.inputs[0]
    return node


def next_sum(node: Node) -> Node | None:
    """The sum that a value goes into, if it goes nowhere else but into the gates of that sum."""
    consumers = [n for n in node.frame.nodes if node in n.inputs]
    if node in node.frame.returned:
        return None
    for total in consumers:
        if total.op not in ADDITIONS or total.shape != node.shape:
            continue
        others = [n for n in consumers if n is not total]
        rate = next((n for n in total.operands if n is not None and n is not node), None)
        if not others or (
            rate is not None
            and not precedes(node, before_gates(rate))
            and all(reaches(n, rate) for n in others)
        ):
            return total
    return None


def gates(rate: Node) -> Iterator[tuple[Node, int]]:
    """Products that scale the branch just before the addition, outermost first.

    A gate multiplies with a constant, a parameter, a value with fewer entries, or one that was
    pooled, which on a map of one pixel has as many. Modules are looked into, so SE, LayerScale or a
    scale in the block's own code are all found; norms are not. What an attached module multiplies
    its rate with is a gate, whatever its size: in a decoder each token has its own step size.
    """
    node: Node | None = rate
    while node is not None:
        node = same_values(node)
        if node.op in SCALINGS:
            operand = _scaled_operand(node)
            if operand is None:
                return
            yield node, operand
            node = node.operands[operand]
        elif node.called is not None:
            if "norm" in type(node.called.module).__name__.lower():
                return
            node = node.inner
        else:
            node = node.outer


def before_gates(rate: Node) -> Node:
    """What the gates of a rate scale, as far as the code that adds has a value for it."""
    plain = rate
    for product, operand in gates(rate):
        source = product.operands[operand]
        while source is not None and source.frame is not rate.frame:
            source = same_values(source).outer
        plain = source or plain
    return plain


def _scaled_operand(product: Node) -> int | None:
    if len(product.operands) != 2:
        return None
    sizes = [0 if n is None else _size(n) for n in product.operands]
    if sizes[0] == sizes[1]:
        sizes = [int(n is not None and not n.pooled) for n in product.operands]
    inside = any(hasattr(frame.module, ATTACHED) for frame in product.frame.up_to(None))
    if sizes[0] == sizes[1] and inside:
        sizes = [int(n is not None and same_values(n).op == "argument") for n in product.operands]
    if sizes[0] == sizes[1]:
        return None
    scaled = sizes.index(max(sizes))
    node = product.operands[scaled]
    if node is None or node.shape != product.shape:
        return None
    return None if scaled == 1 and product.op not in ("mul", "mul_") else scaled


def _size(node: Node) -> int:
    while node.op in ("expand", "expand_as", "unsqueeze", "view", "reshape"):
        node = node.inputs[0]
    return math.prod(node.shape)
