"""Calls of gates put into the text of a method; the rest of the text stays as it is.

Every edit puts something before and behind a part of the text, or takes a stretch out. What is
evaluated, and in which order, does not change but for the calls of the gates.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from stiffnet.network.conditional_code import other_ways
from stiffnet.network.method_source import (
    Method,
    Place,
    Unreadable,
    begin,
    enclosing,
    lines_of,
    stop,
)

Kind = Literal["addition", "result", "argument"]
Span = tuple[int, int]

_SPACE = rb"(?:[\s\\]|#[^\n]*+)*+"  # and comments
_SIGN = re.compile(rb"((?:%b\))*+)%b([+-])=?%b" % ((_SPACE,) * 3))

Turn = tuple[int | str, ...]
"""Of every loop around an addition: the path of the layer that it has come to, or a number."""

EVERY: Turn = (-1,)
"""In the place of a turn: the gate is for all, and is called with the turn too."""


@dataclass(frozen=True)
class Spot:
    """Where in the code of a class a gate is called."""

    depth: int  # which class of its method resolution order has the method
    method: str
    kind: Kind  # on an operand of an addition, on what is returned, or on the first argument
    number: int = 0  # which of the additions in the method's text it is
    operand: int = 0  # which operand of the addition is the rate
    loop: Turn | None = None  # of the loops around the addition; None where one gate is for all


@dataclass(frozen=True)
class Gate:
    """One gate in the code of a block."""

    child: str  # name of the gate among the block's children
    nth: int  # which of the block's steps it is on, from 0
    spot: Spot
    with_state: bool = False  # it is called with the state too
    turns: tuple[Turn, ...] = ()  # of one in a loop: all that it took, with a gate or without


@dataclass
class _Text:
    """A text and what is to be put into it."""

    lines: list[bytes]
    _edits: list[tuple[int, tuple[int, ...], str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.whole = b"".join(self.lines)

    def at(self, place: Place) -> int:
        return sum(map(len, self.lines[: place[0] - 1])) + place[1]

    def span(self, node: ast.AST) -> Span:
        return self.at(begin(node)), self.at(stop(node))

    def sides(self, node: ast.BinOp | ast.AugAssign) -> tuple[Span, int, Span]:
        """Both sides of a sum, with their parentheses, and where its sign is between them."""
        left = node.left if isinstance(node, ast.BinOp) else node.target
        found = _SIGN.match(self.whole, self.at(stop(left)))
        assert found is not None
        start, end = self.span(node)
        return (start, found.end(1)), found.start(2), (found.end(), end)

    def wrap(self, start: int, end: int, before: str, behind: str) -> None:
        """Put something around a stretch; around what is put around parts of it."""
        size, number = end - start, len(self._edits)
        self._edits.append((start, (1, -size, -number), before, start))
        self._edits.append((end, (0, size, number), behind, end))

    def cut(self, start: int, end: int) -> None:
        self._edits.append((start, (0, 0, -1), "", end))

    def result(self) -> str:
        parts, position = [], 0
        for at, _, text, resume in sorted(self._edits):
            parts += [self.whole[position:at], text.encode()]
            position = max(position, resume)
        return b"".join([*parts, self.whole[position:]]).decode()


def with_gates(method: Method, gates: Sequence[Gate]) -> str:
    """Put the calls of gates into the text of their method; later gates around earlier ones.

    Raises Unreadable if a call cannot be put where it should be.
    """
    text = _Text([line.encode() for line in lines_of(method.text)])
    by_spot: dict[tuple[Kind, int, int], list[Gate]] = defaultdict(list)
    for gate in gates:
        by_spot[gate.spot.kind, gate.spot.number, gate.spot.operand].append(gate)
    loops: dict[ast.For | ast.comprehension, str] = {}
    gated = [method.additions[number] for kind, number, _ in by_spot if kind == "addition"]
    for number, ((kind, addition, operand), group) in enumerate(by_spot.items()):
        node = method.additions[addition] if kind == "addition" else method.tree
        looped = any(gate.spot.loop is not None for gate in group)
        around = loops_around(method, node) if looped else []  # outermost first
        indices = [loops.setdefault(loop, f"_turn_{len(loops)}") for loop in around]
        call = _Call(method.self_name, group, f"_state_{number}", indices)
        if kind == "result":
            _gate_results(text, method, call)
        elif kind == "argument":
            _gate_argument(text, method, call)
        elif isinstance(node, ast.BinOp):
            _gate_sum(text, method, node, operand, call)
        elif isinstance(node, ast.AugAssign):
            _gate_augmented(text, node, operand, call)
        elif isinstance(node, ast.Call):
            _gate_call(text, method, node, operand, call)
    for loop, name in loops.items():  # which keeps its turn in a variable of this name
        text.wrap(*text.span(loop.target), f"{name}, (", ")")
        text.wrap(*text.span(loop.iter), f"{method.self_name}.in_turns(", ")")
    for other in other_ways(method, gated):
        _watch(text, method, other)
    return text.result()


@dataclass(frozen=True)
class _Call:
    """How the gates of one operand are called."""

    owner: str
    gates: Sequence[Gate]
    temporary: str  # a name for the state, where the code has none
    indices: Sequence[str]  # of the turns of the loops around, where each turn has its own gates

    @property
    def with_state(self) -> bool:
        return any(gate.with_state for gate in self.gates)

    def before(self) -> str:
        if self.indices:
            spot = self.gates[0].spot
            key = f"{spot.depth}, {spot.method!r}, {spot.number}, {spot.operand}"
            return f"{self.owner}.gate_in_loop(({key}), ({', '.join(self.indices)},), "
        return "".join(f"{self.owner}.{gate.child}(" for gate in reversed(self.gates))

    def behind(self, state: str) -> str:
        if self.indices:
            return f", {state})" if self.with_state else ")"
        return "".join(f", {state})" if gate.with_state else ")" for gate in self.gates)


def _gate_sum(text: _Text, method: Method, node: ast.BinOp, operand: int, call: _Call) -> None:
    """Gate one side of ``left + right``."""
    left, sign, right = text.sides(node)
    state = _variable((node.left, node.right)[1 - operand])
    if state or not call.with_state:
        text.wrap(*(left, right)[operand], call.before(), call.behind(state))
        return
    name = call.temporary
    head = _head(text, method, node)  # of a statement that is cut in two or three; else walrus
    if operand == 1:
        walrus, statement = (f"({name} := ", ")"), (f"{name} = ", f"; {head}{name}")
        text.wrap(*left, *(walrus if head is None else statement))
        text.wrap(*right, call.before(), call.behind(name))
    else:  # the state is computed behind the rate: keep both, then add
        rate, operator = f"{name}_rate", "+" if isinstance(node.op, ast.Add) else "-"
        total = f"{call.before()}{rate}{call.behind(name)} {operator} {name}"
        text.cut(sign, sign + 1)
        if head is not None:
            text.wrap(*left, f"{rate} = ", ";")
            text.wrap(*right, f"{name} = ", f"; {head}{total}")
        else:
            text.wrap(left[0], right[1], "(", f", {total})[-1]")
            text.wrap(*left, f"({rate} := ", "),")
            text.wrap(*right, f"({name} := ", ")")


def _head(text: _Text, method: Method, node: ast.BinOp) -> str | None:
    """Take out what stands before a sum that is all that its statement computes.

    TorchScript knows no assignment inside an expression: several statements serve it as well.
    """
    statement = method.parents[node]
    whole = isinstance(statement, ast.Assign | ast.Return) and statement.value is node
    if not whole or stop(statement) != stop(node):
        return None
    start, end = text.at(begin(statement)), text.at(begin(node))
    head = text.whole[start:end]
    if b"(" in head or b"\n" in head:
        return None
    text.cut(start, end)
    return head.decode()


def _gate_augmented(text: _Text, node: ast.AugAssign, operand: int, call: _Call) -> None:
    """Gate the value or the target of ``target += value``."""
    (start, _), _, (value, end) = text.sides(node)
    target = ast.unparse(node.target)
    if (operand == 0 or call.with_state) and not _plain(node.target):
        raise Unreadable(f"its addition is to {target!r}; add to a variable")
    if operand == 1:
        text.wrap(value, end, call.before(), call.behind(target))
        return
    name = _variable(node.value) or call.temporary
    gated = f"{call.before()}{target}{call.behind(name)}"
    if not call.with_state or name != call.temporary:
        text.wrap(start, end, f"{target} = {gated}; ", "")
    else:
        sign = "+=" if isinstance(node.op, ast.Add) else "-="
        text.cut(start, value)
        before, behind = f"{target} = (({name} := ", f"), {gated})[-1]; {target} {sign} {name}"
        text.wrap(value, end, before, behind)


def _variable(node: ast.expr) -> str:
    """The name of a variable; nothing for any other expression."""
    return node.id if isinstance(node, ast.Name) else ""


def _plain(node: ast.expr) -> bool:
    """Whether reading an expression twice is reading the same thing."""
    if isinstance(node, ast.Attribute):
        return _plain(node.value)
    if isinstance(node, ast.Subscript):
        return _plain(node.value) and isinstance(node.slice, ast.Name | ast.Constant)
    return isinstance(node, ast.Name)


def _gate_call(text: _Text, method: Method, node: ast.Call, operand: int, call: _Call) -> None:
    """Gate an operand of ``torch.add(a, b)``, ``a.add(b)`` or ``self.skip.add(a, b)``."""
    sides = _operands(node)
    rate, state = sides[operand], sides[1 - operand]
    name = _variable(state)
    if call.with_state and not name:
        if operand == 0:
            raise Unreadable("its addition computes the state behind the rate; use a variable")
        name = call.temporary
        text.wrap(*text.span(state), f"({name} := ", ")")
    statement = method.parents[node]
    if operand == 1 or not isinstance(rate, ast.Name) or not isinstance(statement, ast.Expr):
        text.wrap(*text.span(rate), call.before(), call.behind(name))
        return
    # the sum is written into the rate, which the code goes on with
    gated = f"{rate.id} = {call.before()}{rate.id}{call.behind(name)}; "
    text.wrap(*text.span(statement), gated, "")


def _operands(node: ast.Call) -> tuple[ast.expr, ast.expr]:
    """Both operands of a call that adds: two arguments, or an object and an argument."""
    named = {keyword.arg: keyword.value for keyword in node.keywords}
    given = [*node.args, *(named[name] for name in ("input", "other", "x", "y") if name in named)]
    if any(isinstance(argument, ast.Starred) for argument in given) or None in named:
        raise Unreadable("its addition is given its operands as a list")
    if len(given) == 2:
        return given[0], given[1]
    if len(given) == 1 and isinstance(node.func, ast.Attribute):
        return node.func.value, given[0]
    raise Unreadable("its addition has no two operands")


def loops_around(method: Method, node: ast.AST) -> list[ast.For | ast.comprehension]:
    """List the loops around a part of a method that count their turns, outermost first."""
    found: list[ast.For | ast.comprehension] = []
    for around in enclosing(method, node):
        if isinstance(around, ast.For):
            found.append(around)
        elif isinstance(around, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            found.extend(reversed(around.generators))
    return found[::-1]


def _gate_results(text: _Text, method: Method, call: _Call) -> None:
    """Gate whatever the method returns."""
    returns = [n for n in ast.walk(method.tree) if isinstance(n, ast.Return)]
    own = [node for node in returns if enclosing(method, node)[-1] is method.tree]
    if not own or any(n.value is None or isinstance(n.value, ast.Tuple) for n in own):
        raise Unreadable("it does not return one value")
    for node in own:
        assert node.value is not None
        start, end = text.span(node)
        word = re.compile(b"return" + _SPACE).match(text.whole, start)
        assert word is not None
        text.wrap(word.end(), end, call.before(), call.behind(""))


def _gate_argument(text: _Text, method: Method, call: _Call) -> None:
    """Gate the first argument, before anything else happens."""
    named = [*method.tree.args.posonlyargs, *method.tree.args.args]
    if len(named) < 2:
        raise Unreadable("it has no argument of its own")
    name = named[1].arg
    body = method.tree.body
    is_text = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    first = body[1] if is_text and len(body) > 1 else body[0]
    start, end = text.span(first)
    indent = text.whole[text.at((first.lineno, 0)) : start].decode()
    if indent.strip():
        raise Unreadable("its code is on one line")
    gated = f"{name} = {call.before()}{name}{call.behind('')}\n{indent}"
    text.wrap(start, end, gated, "")


def _watch(text: _Text, method: Method, node: ast.expr | ast.stmt) -> None:
    """Have an addition on another way checked, which would pass the gates over."""
    check = f"{method.self_name}.not_elsewhere("
    if isinstance(node, ast.AugAssign):
        state = ast.unparse(node.target) if _plain(node.target) else "None"
        text.wrap(*text.sides(node)[2], check, f", {state})")
    elif isinstance(node, ast.BinOp):
        left, _, right = text.sides(node)
        state = _variable(node.left) or _variable(node.right)
        side = left if state and not _variable(node.left) else right
        text.wrap(*side, check, f", {state or None})")
    else:
        text.wrap(*text.span(node), check, ")")
