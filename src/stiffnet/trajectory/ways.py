"""Ways between the values of one frame: what came from what, and through what."""

from stiffnet.trajectory.functions import ADDITIONS, SAME_VALUES
from stiffnet.trajectory.gating import before_gates
from stiffnet.trajectory.graph import Node


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
