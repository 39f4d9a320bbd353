"""The public door."""

import subprocess
import sys
import types

import pytest

import stiffnet


@pytest.mark.parametrize("name", [n for n in dir(stiffnet) if not n.startswith("_")])
def test_a_public_name_is_there_and_says_what_it_is(name):
    value = getattr(stiffnet, name)
    assert not isinstance(value, types.ModuleType)
    assert value.__doc__


def test_the_function_wins_over_the_module_of_its_name():
    import stiffnet.measure  # the module

    assert callable(stiffnet.measure)
    assert sys.modules["stiffnet.measure"].measure is stiffnet.measure


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
