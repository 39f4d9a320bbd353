"""The house: imports go one way through its rooms."""

import ast
from collections.abc import Iterator
from pathlib import Path

import stiffnet
from naming import case

SRC = Path(stiffnet.__file__).parent
ROOMS = (
    "errors", "files", "registry", "trajectory", "stiffness", "attention", "backbones", "data",
    "network", "report", "fold", "measure", "stripes", "train", "cli", "__main__",
)  # fmt: skip
FILES = [file for file in sorted(SRC.rglob("*.py")) if file != SRC / "__init__.py"]
FORBIDDEN = {"eval", "exec", "__import__"}


def own_imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module
            yield node.module if node.module != "stiffnet" else f"stiffnet.{node.names[0].name}"


def test_no_module_imports_from_a_later_room():
    for file in FILES:
        room = ROOMS.index(file.relative_to(SRC).with_suffix("").parts[0])
        for name in own_imports(ast.parse(file.read_text())):
            package, _, rest = name.partition(".")
            with case(file, name):
                if package == "stiffnet" and rest != "__version__":
                    assert ROOMS.index(rest.split(".")[0]) <= room, f"{name} is a later room"


def test_nothing_turns_strings_into_code():
    for file in FILES:
        called = {
            node.func.id
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        with case(file):
            assert not called & FORBIDDEN
            assert "pickle.load" not in file.read_text()
            assert "weights_only=False" not in file.read_text()


def test_the_report_room_needs_no_torch_to_draw():
    for name in ("page", "plots", "terminal", "view", "tables", "findings"):
        assert "torch" not in set(
            own_imports(ast.parse((SRC / "report" / f"{name}.py").read_text()))
        )
