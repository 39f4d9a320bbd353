"""The public door."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stiffnet

# Written out, and not read from the package: a name that is taken away must be missed here.
PUBLIC = {
    "Attachment", "Comparison", "FoldResult", "GradcamReport", "LightningAttachment", "Position",
    "Spectrum", "SpectrumReport", "Step", "StiffnessMetric", "StiffnessReport", "StripeReport",
    "Trajectory", "asr", "attach", "attached", "attachment", "compare", "create_model", "detach",
    "first_differences", "fold", "freeze_attention", "from_pretrained", "gradcam", "growth",
    "measure", "rank_models", "reattach", "record", "register_attention", "register_positions",
    "relate", "spectrum", "steps", "stripes", "stripes_over_epochs", "tns", "top_k",
}  # fmt: skip
DOOR = ast.parse(Path(stiffnet.__file__).read_text())


def test_the_public_names_are_these():
    assert {name for name in dir(stiffnet) if not name.startswith("_")} == PUBLIC


def test_type_checkers_see_the_same_names_from_the_same_files():
    """The names of the `if TYPE_CHECKING` block, as another tool reads them."""
    seen = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in ast.walk(DOOR)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("stiffnet.")
        for alias in node.names
    }
    assert seen == {name: f"{stiffnet._HOME[name]}.{name}" for name in PUBLIC}


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_is_a_function_or_class_of_ours_of_that_name(name):
    value = getattr(stiffnet, name)
    assert inspect.isfunction(value) or inspect.isclass(value)
    assert value.__module__ == stiffnet._HOME[name]
    assert value.__qualname__ == name


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_says_what_it_is_and_what_it_takes(name):
    """In words of its own: a dataclass would get its signature for a docstring."""
    value = getattr(stiffnet, name)
    text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    assert text
    assert not text.startswith(f"{name}(")
    first = inspect.cleandoc(text).split("\n\n")[0]
    assert re.search(r"[.:]$", first), first
    if inspect.isfunction(value):
        for parameter in {*inspect.signature(value).parameters} - {"model"}:
            assert re.search(rf"\b{parameter}\b", text), f"{parameter} is not described"


def test_the_function_wins_over_the_module_of_its_name():
    import stiffnet.observe.measure  # the module

    assert callable(stiffnet.measure)
    assert sys.modules["stiffnet.observe.measure"].measure is stiffnet.measure


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'mesure'"):
        _ = stiffnet.mesure


@pytest.mark.parametrize("command", [["--help"], ["measure", "--help"], ["--version"]])
def test_help_does_not_import_torch(command):
    code = (
        "import sys; from stiffnet.cli.main import main; status = main(sys.argv[1:]); "
        "assert 'torch' not in sys.modules; sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "stiffnet" in done.stdout
