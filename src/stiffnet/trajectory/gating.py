"""Step sizes that a network has of its own: what scales a branch just before it is added."""

import math
from collections.abc import Iterator

from stiffnet.trajectory.functions import SAME_VALUES, SCALINGS
from stiffnet.trajectory.graph import Node


def gates(rate: Node) -> Iterator[tuple[Node, int]]:
    """Products that scale the branch just before the addition, outermost first.

    A gate multiplies with a constant, a parameter, a value with fewer entries, or one that was
    pooled, which on a map of one pixel has as many. Modules are looked into, so SE, LayerScale or a
    scale in the block's own code are all found; norms are not.
    """
    node: Node | None = rate
    while node is not None:
        if node.op in SAME_VALUES:
            node = node.inputs[0]
        elif node.op in SCALINGS:
            operand = _scaled_operand(node)
            if operand is None:
                return
            yield node, operand
            node = node.operands[operand]
        elif node.op == "call" and node.called is not None:
            if "norm" in type(node.called.module).__name__.lower():
                return
            node = node.inner
        elif node.op == "argument":
            node = node.outer
        else:
            return


def before_gates(rate: Node) -> Node:
    """What the gates of a rate scale, as far as the code that adds has a value for it."""
    plain = rate
    for product, operand in gates(rate):
        source = product.operands[operand]
        while source is not None and source.frame is not rate.frame:
            if source.op in SAME_VALUES:
                source = source.inputs[0]
            else:
                source = source.outer if source.op == "argument" else None
        plain = source or plain
    return plain


def _scaled_operand(product: Node) -> int | None:
    if len(product.operands) != 2:
        return None
    sizes = [0 if n is None else _size(n) for n in product.operands]
    if sizes[0] == sizes[1]:
        sizes = [int(n is not None and not n.pooled) for n in product.operands]
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
