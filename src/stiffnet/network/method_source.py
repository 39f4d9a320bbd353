"""The source of one method: its text, the additions in it, and the method made of a changed text.

A method is found by the code that ran. Its file is compiled again, unchanged, and must give that
same code: a file that was edited after it was imported, or code that a tool has rewritten, is told
by that. The changed method shares globals, closure and defaults with the old one.
"""

import __future__

import ast
import functools
import linecache
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import Any, TypeGuard

from torch import nn

Place = tuple[int, int]
"""Line, and column in bytes of UTF-8."""

ADDING = frozenset((
    "add", "add_", "iadd", "isub", "sub", "sub_", "subtract", "subtract_", "sum", "addcmul",
    "addcmul_", "baddbmm", "index_add", "index_add_", "lerp", "lerp_", "scatter_add",
    "scatter_add_",
))  # fmt: skip
"""Names of functions and methods that add; a gate can be put on those of two operands."""


class Unreadable(Exception):
    """Source cannot be had or changed; the message ends a sentence that says why."""


@dataclass(frozen=True, eq=False)
class Method:
    """A method of a class, as text."""

    owner: type[nn.Module]  # the class in whose body it is
    name: str
    function: FunctionType  # without its decorators
    tree: ast.FunctionDef  # its syntax
    text: str  # of its file, where the functions and classes that it is not in are empty lines

    @property
    def source(self) -> str:
        """Its own part of the text."""
        return "".join(lines_of(self.text)[_first_line(self.tree) - 1 : self.tree.end_lineno])

    @functools.cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """What each part of it is a part of."""
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @functools.cached_property
    def additions(self) -> list[ast.expr | ast.stmt]:
        """Everything in it that may add, inner ones first: an order that no gate changes."""
        return [node for node in _postorder(self.tree) if _may_add(node)]

    @property
    def names(self) -> list[str]:
        """Everything that its class calls it: ``forward = run`` is a second name."""
        own = self.owner.__dict__
        return [name for name, value in own.items() if value is own[self.name]]

    @property
    def self_name(self) -> str:
        """What it calls the object that it is a method of."""
        arguments = self.tree.args
        named = [*arguments.posonlyargs, *arguments.args]
        if not named:
            raise Unreadable("its code has no `self`")
        return named[0].arg

    def addition_at(self, start: Place, end: Place) -> int:
        """Return the number of the addition at a place in the file, or raise Unreadable."""
        for number, node in enumerate(self.additions):
            # Python moves the beginning of a call that is spread over lines, never its end
            same_start = isinstance(node, ast.Call) or begin(node) == start
            if same_start and stop(node) == end:
                return number
        raise Unreadable("it adds in an expression that cannot be taken apart")

    def changed(self, text: str, label: str) -> Callable[..., Any]:
        """Make the method of a changed text, decorated as it was; `label` names the change."""
        old = self.function
        filename = f"<stiffnet {label}: {self.owner.__qualname__}.{self.name}>"
        code = _code(text, filename, old.__code__)
        linecache.cache[filename] = (len(text), None, lines_of(text), filename)
        cells = dict(zip(old.__code__.co_freevars, old.__closure__ or (), strict=True))
        new = _like(old, code, [cells[name] for name in code.co_freevars])
        del new.__wrapped__  # it does not call the old one
        made: Callable[..., Any] = _rewrapped(self.owner.__dict__[self.name], old, new)
        return made


def method_of(kind: type[nn.Module], code: CodeType) -> Method | None:
    """Find the method of a class that has this code, or that has it in a function inside.

    Raises Unreadable if its source cannot be had.
    """
    for owner in kind.__mro__:
        for name, value in owner.__dict__.items():
            function = _innermost(value, name)
            if function is None or not _holds(value, function):
                continue
            if any(code is part for part in _nested(function.__code__)):
                return _read(owner, name, function)
    return None


def method_of_class(kind: type[nn.Module], depth: int, name: str) -> Method:
    """Read a method of a class, or of the base at some depth of its method resolution order.

    Raises Unreadable if there is none, or its source cannot be had.
    """
    owner = kind.__mro__[depth] if depth < len(kind.__mro__) else kind
    function = _innermost(owner.__dict__.get(name), name)
    if function is None:
        raise Unreadable(f"its {name!r} is not a Python function")
    return _read(owner, name, function)


def _innermost(value: Any, name: str) -> FunctionType | None:
    """A method without its decorators; a function may also close over itself."""
    seen: list[FunctionType] = []
    while isinstance(value, FunctionType):
        seen.append(value)
        inside = [getattr(value, "__wrapped__", None), *_closed_over(value)]
        own = (f for f in inside if isinstance(f, FunctionType) and f.__name__ == name)
        value = next((f for f in own if f not in seen), None)
    return seen[-1] if seen else None


def _holds(value: Any, function: FunctionType, depth: int = 8) -> bool:
    """Whether a value is a function, or a decorator's around it."""
    if not isinstance(value, FunctionType) or depth == 0:
        return False
    inside = _closed_over(value)
    return value is function or any(_holds(part, function, depth - 1) for part in inside)


def _closed_over(function: FunctionType) -> Iterator[Any]:
    """What the cells of a function's closure hold; some may be empty."""
    for cell in function.__closure__ or ():
        with suppress(ValueError):
            yield cell.cell_contents


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _rewrapped(
    value: Any, old: FunctionType, new: FunctionType, copies: dict[int, CellType] | None = None
) -> Any:
    """Copy the decorators of a method around its new form; one may refer to itself, too."""
    if value is old:
        return new
    copies = {} if copies is None else copies
    itself = copies[id(value)] = CellType()

    def renewed(cell: CellType) -> CellType:
        try:
            content = cell.cell_contents
        except ValueError:  # it is empty
            return cell
        if id(content) in copies:
            return copies[id(content)]
        return CellType(_rewrapped(content, old, new, copies)) if _holds(content, old) else cell

    made = _like(value, value.__code__, map(renewed, value.__closure__ or ()))
    made.__wrapped__ = new
    itself.cell_contents = made
    return made


def _like(function: FunctionType, code: CodeType, cells: Iterable[CellType]) -> Any:
    """Make a function as another one is, of other code or with another closure."""
    name, defaults = function.__name__, function.__defaults__
    made = FunctionType(code, function.__globals__, name, defaults, tuple(cells))
    made.__kwdefaults__ = function.__kwdefaults__
    return functools.update_wrapper(made, function)


@functools.lru_cache(maxsize=512)
def _read(owner: type[nn.Module], name: str, function: FunctionType) -> Method:
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        raise Unreadable(f"the source of {code.co_qualname} cannot be found")
    try:
        tree = _parsed("".join(lines))
        definition = next((n for n in ast.walk(tree) if _defines(n, code)), None)
        if not isinstance(definition, ast.FunctionDef):
            raise Unreadable(f"{code.co_qualname} is not where its file has it")
        text = _without_others(tree, lines, definition)
        same = _same(_code(text, "<unchanged>", code), code)
    except SyntaxError as error:
        raise Unreadable(f"the source of {code.co_qualname} cannot be read") from error
    if not same:
        raise Unreadable(
            f"the source of {code.co_qualname} is not what runs (it was edited since it was "
            "imported, or a tool has rewritten it)"
        )
    return Method(owner, name, function, definition, text)


_parsed = functools.lru_cache(maxsize=64)(ast.parse)


def _defines(node: ast.AST, code: CodeType) -> bool:
    """Whether a function's definition is that of some code, by name and first line."""
    place = (code.co_name, code.co_firstlineno)
    return isinstance(node, ast.FunctionDef) and (node.name, _first_line(node)) == place


def _first_line(definition: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    return min([definition.lineno, *(part.lineno for part in definition.decorator_list)])


def _without_others(tree: ast.Module, lines: Sequence[str], definition: ast.FunctionDef) -> str:
    """A file without its functions and classes, but for the one that a definition is in.

    What is around it decides what its names mean and, for imported ones, how Python calls them.
    """
    kept = list(lines)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first, last = _first_line(node), node.end_lineno or node.lineno
            if not first <= definition.lineno <= last:
                kept[first - 1 : last] = ["\n"] * (last - first + 1)
    return "".join(kept)


def _code(text: str, filename: str, like: CodeType) -> CodeType:
    """Compile a text, and take the code of the function out that is where another is."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # as in notebooks
    for name in __future__.all_feature_names:
        flags |= like.co_flags & getattr(__future__, name).compiler_flag
    whole = compile(text, filename, "exec", flags=flags, dont_inherit=True)
    place = (like.co_name, like.co_firstlineno)
    return next(code for code in _nested(whole) if (code.co_name, code.co_firstlineno) == place)


def _same(one: Any, other: Any) -> bool:
    """Whether two codes do the same: everything but where they stand."""
    if isinstance(one, CodeType) and isinstance(other, CodeType):
        parts = ("co_names", "co_varnames", "co_freevars", "co_cellvars", "co_flags")
        return (
            one.co_code == other.co_code
            and all(getattr(one, part) == getattr(other, part) for part in parts)
            and len(one.co_consts) == len(other.co_consts)
            and all(map(_same, one.co_consts, other.co_consts))
        )
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and repr(one) == repr(other)


def _postorder(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        yield from _postorder(child)
    yield node


def _may_add(node: ast.AST) -> TypeGuard[ast.expr | ast.stmt]:
    if isinstance(node, ast.BinOp | ast.AugAssign):
        return isinstance(node.op, ast.Add | ast.Sub)
    if not isinstance(node, ast.Call):
        return False
    name = getattr(node.func, "attr", getattr(node.func, "id", None))
    return name in ADDING


def lines_of(text: str) -> list[str]:
    """Lines as Python counts them: a form feed, say, ends none."""
    return [line for line in re.split(r"(?<=\n)", text) if line]


def begin(node: Any) -> Place:
    """Where a part of the syntax begins."""
    return node.lineno, node.col_offset


def stop(node: Any) -> Place:
    """Where it ends."""
    return node.end_lineno, node.end_col_offset


def enclosing(method: Method, node: ast.AST) -> Sequence[ast.AST]:
    """What is around a part of a method, the innermost first, up to the function it stands in."""
    around: list[ast.AST] = []
    while node is not method.tree:
        node = method.parents[node]
        around.append(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            break
    return around
