"""Which of a package's files import which, wherever in a file the import stands."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

Graph = dict[str, set[str]]


def modules(package: Path) -> dict[str, Path]:
    """Every module of a package by its dotted name; a folder's door has the folder's name."""
    found = {}
    for file in sorted(package.rglob("*.py")):
        parts = (package.name, *file.relative_to(package).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports(tree: ast.AST) -> Iterator[str]:
    """Full names of what a file imports, also inside functions; names from modules included."""
    yield from _named(ast.walk(tree))


def imported_when_called(tree: ast.AST) -> set[str]:
    """Full names of what a file imports inside functions only."""
    functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))
    inside = [node for function in functions for node in ast.walk(function)]
    kept = set(map(id, inside))
    return {*_named(inside)} - {*_named(n for n in ast.walk(tree) if id(n) not in kept)}


def _named(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{a.name}" for a in node.names)


def graph(files: Mapping[str, Path], asks: Mapping[str, str]) -> Graph:
    """What each module makes Python run: what it imports, and the doors on the way there.

    A room that `asks` another may import it inside functions: that is not counted.
    """
    edges: Graph = {}
    for name, file in files.items():
        edges[name] = set()
        tree = ast.parse(file.read_text())
        asked = asks.get(room_of(name), "")
        when_called = {t for t in imported_when_called(tree) if asked and room_of(t) == asked}
        for target in set(imports(tree)) - when_called:
            parts = target.split(".")
            ways = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
            edges[name] |= {way for way in ways if way in files and way != name}
    return edges


def way_to(edges: Graph, start: str, room: str) -> list[str]:
    """The shortest chain of imports from a module into a room, or nothing."""
    ways = [[start]]
    seen = {start}
    for way in ways:
        for following in sorted(edges[way[-1]] - seen):
            if room_of(following) == room:
                return [*way, following]
            seen.add(following)
            ways.append([*way, following])
    return []


def room_of(module: str) -> str:
    """The folder or file right below the package; the package's own door has none."""
    return (*module.split("."), "")[1]
