"""The help of every command, as it is read: no types of Python's, a text for all, 80 columns."""

import re
import subprocess
import sys

import pytest
import typer

from stiffnet.cli.app import app
from stiffnet.cli.main import main

COMMANDS = typer.main.get_command(app).commands
PAGES = ["", *COMMANDS]


def rendered(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*command.split(), "--help"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", PAGES)
def test_help_shows_flags_and_numbers_as_people_know_them(capsys, monkeypatch, command):
    text = rendered(capsys, monkeypatch, command)
    assert not re.search(r"<\w+( \w+)?>|<=|>=|\d{10}|TEXT|INTEGER|\{", text), text
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert "..." not in text.replace("COMMAND [ARGS]...", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_argument_and_option_says_what_it_is(capsys, monkeypatch, command):
    text = " ".join(rendered(capsys, monkeypatch, command).split())
    assert re.match(r"[A-Z].*\.$", COMMANDS[command].help.splitlines()[0])
    for param in COMMANDS[command].params:
        assert re.fullmatch(r"\S.*\.", param.help, flags=re.DOTALL), param.name
        assert param.help in re.sub(r"- (?=[A-Z])", "-", text), param.name
        is_flag = getattr(param, "is_flag", False)
        assert bool(param.metavar) is not is_flag, param.name
        for name in param.opts if param.param_type_name == "option" else ():
            assert (f"{name} {param.help}" if is_flag else f"{name} {param.metavar} ") in text


def test_choices_are_listed(capsys, monkeypatch):
    text = rendered(capsys, monkeypatch, "train")
    assert "--device auto|cpu|cuda|mps" in text
    assert "--strategy auto|ddp|fsdp" in text
    for word in ("models", "data", "recipes", "attention"):
        assert word in rendered(capsys, monkeypatch, "list")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("-1", "-1 is out of range. Give 0 or more."),
        (f"{2**63}", f"{2**63} is out of range"),
        ("few", "'few' is not a whole number."),
    ],
)
def test_a_number_that_cannot_be_is_a_sentence(capsys, value, words):
    assert main(["demo", f"--seed={value}"]) == 2
    assert f"Invalid value for '--seed': {words}" in capsys.readouterr().err


def test_a_number_between_bounds(capsys):
    assert main(["measure", "x", "--data", "digits", "--num-classes", "1000001"]) == 2
    assert "1000001 is out of range. Give 0 to 1,000,000." in capsys.readouterr().err


def test_help_imports_neither_torch_nor_what_only_commands_need():
    code = (
        "import sys; from stiffnet.cli.main import main; main(['train', '--help']); "
        "sys.exit(sorted({'torch', 'numpy', 'pandas', 'plotly', 'timm'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
