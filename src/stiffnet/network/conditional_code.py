"""Other ways through a method: code that runs in some calls in the place of the additions in it."""

import ast
from collections.abc import Iterator, Sequence

from stiffnet.network.method_source import Method

Code = Sequence[ast.AST]


def other_ways(method: Method, nodes: Sequence[ast.AST]) -> list[ast.expr | ast.stmt]:
    """List the additions that run in some calls in the place of given ones.

    Those are the additions in the other arms of the conditions that a given one stands in, and
    those on the other side of a condition that leaves the method. Where the other way has one of
    the given additions too, there is nothing to list of it.
    """
    given = set(nodes)
    found: list[ast.AST] = []
    for node in nodes:
        for way in _alternatives(method, node):
            inside = [part for root in way for part in ast.walk(root)]
            if given.isdisjoint(inside):
                found.extend(inside)
    return [node for node in method.additions if node in found and not _of_a_number(node)]


def _of_a_number(node: ast.expr | ast.stmt) -> bool:
    """Whether one side of a sum is written down as a number or text, and so is not a tensor."""
    sides = (getattr(node, name, None) for name in ("left", "right", "value"))
    return any(isinstance(side, ast.Constant) for side in sides)


def _alternatives(method: Method, node: ast.AST) -> Iterator[Code]:
    """Code that runs only in calls in which `node` does not; its own arms may be among it."""
    inner = node
    while node is not method.tree:
        parent = method.parents[node]
        if isinstance(parent, ast.IfExp) and node is not parent.test:
            yield from ([parent.body], [parent.orelse])
        elif isinstance(parent, ast.If) and node is not parent.test:
            yield from (parent.body, parent.orelse)
        elif isinstance(parent, ast.Try) and node in parent.body:
            yield from (handler.body for handler in parent.handlers)
        elif isinstance(parent, ast.match_case):
            match = method.parents[parent]
            assert isinstance(match, ast.Match)
            yield from (case.body for case in match.cases)
        yield from _beside(parent, node, inner)
        node, inner = parent, node


def _beside(parent: ast.AST, node: ast.AST, inner: ast.AST) -> Iterator[Code]:
    """Neighbours of a statement that run only where it, or the part `inner` of it, does not."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, None)
        if not isinstance(block, list) or node not in block:
            continue
        place = block.index(node)
        for earlier in block[:place]:
            yield from _ways_out(earlier)
        if isinstance(node, ast.If):
            arm = node.body if inner in node.body else node.orelse
            if inner in arm and _leaves(arm):
                yield block[place + 1 :]


def _ways_out(statement: ast.stmt) -> Iterator[Code]:
    """Arms of a condition, or of conditions in it, after which the code does not go on."""
    if isinstance(statement, ast.If | ast.With | ast.Try | ast.For | ast.While):
        for arm in (statement.body, getattr(statement, "orelse", [])):
            if _leaves(arm) and not isinstance(statement, ast.With):
                yield arm
            else:
                for inner in arm:
                    yield from _ways_out(inner)


def _leaves(block: Sequence[ast.stmt]) -> bool:
    return bool(block) and isinstance(block[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)
