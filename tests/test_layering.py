"""The house: imports go one way through its rooms, directly, indirectly and at run time."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stiffnet
from imports import graph, imports, modules, room_of, way_to
from naming import case

SRC = Path(stiffnet.__file__).parent
CONTRIBUTING = Path(__file__).parent.parent / "CONTRIBUTING.md"
FILES = modules(SRC)
IDS = [name for name in FILES if name != "stiffnet"]
COMMAND = "__main__"  # which is `cli` under another name

# What a room's line in CONTRIBUTING's table says beyond the order of the lines: rooms that stand
# before it, and that it may not reach all the same, not even through others.
APART = {
    "ode": {"trajectory", "stiffness"},  # differential equations
    "attention": {"trajectory", "stiffness"},  # knows tensors
    "backbones": {"stiffness"},  # networks of our own
    "data": {"trajectory", "stiffness", "attention", "backbones"},  # images and labels
    "network": {"stiffness"},  # networks by name, weights, folders
    "fold": {"stiffness", "data"},  # networks
    "report": {"ode", "attention", "backbones", "data", "network", "fold", "observe"},  # results
    "train": {"fold"},  # recipes, the loop, checkpoints
    "studies": {
        "ode",
        "attention",
        "backbones",
        "data",
        "network",
        "fold",
        "observe",
        "report",
        "train",
    },  # claims, and numbers of rows
}
ASKS = {"results": "report"}  # to be drawn, in the method that a user calls
# Rooms whose files must be there without torch, but for one, which follows a training run and is
# imported inside commands only.
WITHOUT_TORCH = {
    "errors", "files", "registry", "schema", "sealed", "words", "results", "ode", "report",
    "studies", "cli", COMMAND,
}  # fmt: skip
WITH_TORCH = {"stiffnet.cli.following"}
TURNS_STRINGS_INTO_CODE = {"eval", "exec", "__import__"}
IMPORTS_BY_STRING = {
    "import_module", "__import__", "exec_module", "load_module", "run_module", "run_path",
}  # fmt: skip


def rooms() -> dict[str, int]:
    """Each room of CONTRIBUTING's table with its line; rooms of one line may know each other."""
    house = CONTRIBUTING.read_text().split("## The house")[1].split("\n## ")[0]
    lines = re.findall(r"^\| (`.*?) \|", house, flags=re.MULTILINE)
    table = {room: i for i, line in enumerate(lines) for room in re.findall(r"`(\w+)/?`", line)}
    return table | {COMMAND: table["cli"]}


def complaints(
    files: dict[str, Path],
    order: dict[str, int],
    apart: dict[str, set[str]],
    asks: dict[str, str],
):
    """Every import that goes up the table, uses the package's own door, or reaches too far."""
    top = next(iter(files)).split(".")[0]
    edges = graph(files, asks) | {
        top: set()
    }  # the door imports when it is asked, and no room may ask
    for name, file in files.items():
        room = room_of(name)
        if not room:
            continue
        for target in imports(ast.parse(file.read_text())):
            if target.startswith("."):
                yield f"{name}: {target} is relative"
            elif target == top or (
                target.rpartition(".")[0] == top and target not in (f"{top}.__version__", *files)
            ):
                yield f"{name}: {target} goes through the package's door, which hides a room"
        for target in sorted(edges[name]):
            if room_of(target) and order[room_of(target)] > order[room]:
                yield f"{name}: {target} is in a later room"
        for other in sorted(apart.get(room, ())):
            if way := way_to(edges, name, other):
                yield f"{name}: reaches {other} by {' -> '.join(way)}"


def test_contributing_lists_every_room():
    assert set(rooms()) == {room_of(name) for name in FILES} - {""}
    assert set(APART) | WITHOUT_TORCH | {*ASKS, *ASKS.values()} <= set(rooms())


def test_imports_go_one_way():
    assert list(complaints(FILES, rooms(), APART, ASKS)) == []


ASKING = "class C:\n    def shown(self):\n        from house.high.b import draw"


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("low/a", "from house.high.b import f", "house.low.a: house.high.b is in a later room"),
        ("low/a", "import house.high.b as b", "house.low.a: house.high.b is in a later room"),
        ("low/a", "from house import x, high", "house.low.a: house.high is in a later room"),
        ("low/a", "def f():\n    import house.high.b", "house.high.b is in a later room"),
        ("low/a", "if TYPE_CHECKING:\n    from house.high import b", "is in a later room"),
        ("low/a", "from ..high import b", "low.a: ..high.b is relative"),
        ("low/a", "from house import shown", "low.a: house.shown goes through the package's door"),
        ("low/a", "import house\nhouse.shown()", "low.a: house goes through the package's door"),
        ("mid/c", "def f():\n    import house.low.a", "house.high.b: reaches low by house.high.b ->"
         " house.mid.c -> house.low"),
        ("mid/__init__", "from house.low import a", "house.high.b: reaches low by house.high.b ->"
         " house.mid -> house.low"),
        ("mid/c", "from house.high import b", "house.mid.c: house.high.b is in a later room"),
        ("mid/c", "import house.high.b\ndef f():\n    import house.high.b", "is in a later room"),
    ],
)  # fmt: skip
def test_the_check_sees_every_way_to_import(tmp_path, file, text, complaint):
    """A house of three rooms: `high` may know `mid` and not `low`, and `mid` may ask `high`."""
    house = tmp_path / "house"
    sound = {"low/a": "", "mid/c": ASKING, "high/b": "from house.mid.c import g"}
    for room in ("low", "mid", "high"):
        (house / room).mkdir(parents=True)
    for name in ("__init__", "low/__init__", "mid/__init__", "high/__init__"):
        (house / f"{name}.py").write_text("")
    for name, content in sound.items():
        (house / f"{name}.py").write_text(content)
    law = {"low": 0, "mid": 1, "high": 2}, {"high": {"low"}}, {"mid": "high"}
    assert list(complaints(modules(house), *law)) == []
    (house / f"{file}.py").write_text(text)
    found = list(complaints(modules(house), *law))
    assert any(complaint in line for line in found), found


def names_in(tree: ast.AST) -> set[str]:
    """Every plain or dotted name that a file mentions, imported ones included."""
    nodes = list(ast.walk(tree))
    return {
        *(node.id for node in nodes if isinstance(node, ast.Name)),
        *(node.attr for node in nodes if isinstance(node, ast.Attribute)),
        *(node.name for node in nodes if isinstance(node, ast.alias)),
    }


def test_names_are_seen_however_they_are_written():
    for text in ("import_module(x)", "importlib.import_module(x)", "f = import_module",
                 "from importlib import import_module as g"):  # fmt: skip
        assert names_in(ast.parse(text)) & IMPORTS_BY_STRING, text


def test_nothing_imports_by_a_string():
    """So that the check above sees every import; the package's own door is the exception."""
    for name in IDS:
        with case(name):
            assert not names_in(ast.parse(FILES[name].read_text())) & IMPORTS_BY_STRING


def called_in(text: str) -> set[str]:
    """Names of the functions that a file calls by a plain name."""
    nodes = ast.walk(ast.parse(text))
    return {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}


def test_nothing_turns_strings_into_code():
    for name in IDS:
        text = FILES[name].read_text()
        with case(name):
            assert not called_in(text) & TURNS_STRINGS_INTO_CODE
            assert "pickle.load" not in text
            assert "weights_only=False" not in text


def test_only_the_command_line_prints():
    for name in IDS:
        with case(name):
            assert room_of(name) == "cli" or "print" not in called_in(FILES[name].read_text())


IMPORTER = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    if "torch" in sys.modules:
        sys.exit(f"{name} imports torch")
"""


def imported_by(*names: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    code = IMPORTER if path is None else f"import sys; sys.path.insert(0, {str(path)!r})" + IMPORTER
    command = [sys.executable, "-c", code, *names]
    return subprocess.run(command, capture_output=True, text=True)


def test_commands_results_and_pages_do_not_import_torch_when_they_are_imported():
    """Whatever imports it: their own line, a line in another room, or a library."""
    light = {name for name in FILES if room_of(name) in WITHOUT_TORCH} - WITH_TORCH
    done = imported_by("stiffnet", *sorted(light))
    assert done.returncode == 0, done.stderr


def test_an_import_of_torch_through_others_is_noticed(tmp_path):
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "between.py").write_text("import torch")
    (tmp_path / "page.py").write_text("import between")
    done = imported_by("json", "page", path=tmp_path)
    assert done.returncode != 0
    assert "page imports torch" in done.stderr
