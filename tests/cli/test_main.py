"""The door of the command line: signals at any moment, and errors that name their file."""

import os
import signal
import subprocess
import sys
import time

import pytest

from stiffnet.cli.main import main

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.mark.parametrize("number", STATUS)
def test_a_signal_during_the_first_imports_ends_it_with_its_status(number):
    """Python tells on stderr what it imports; the signal comes within the first of ours."""
    for delay in (0, 0.02, 0.05, 0.1, 0.2):
        process = subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", "stiffnet", "measure", "--help"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for line in process.stderr:
            if "typer" in line:
                break
        time.sleep(delay)
        process.send_signal(number)
        shown, said = process.communicate(timeout=60)
        assert "Traceback" not in said, delay
        if not shown:  # on a fast machine it is over by then, and Python about to end
            assert process.returncode == STATUS[number], delay
            assert "stiffnet: " in said
    assert delay == 0.2


HOOK = """
import os, signal, sys

class Strike:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Strike())
from stiffnet.cli.main import main
sys.exit(main(["train", "resnet20_cifar", "--data", "digits", "--out", "run"]))
"""


@pytest.mark.parametrize("number", STATUS)
def test_a_signal_within_any_import_ends_it_quietly(tmp_path, number):
    for module in ("typer", "rich.console", "stiffnet.cli.train", "stiffnet.errors", "numpy"):
        code = HOOK.format(module=module, number=int(number))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == STATUS[number], (module, done.stderr)
        assert done.stderr in ("stiffnet: interrupted.\n", "stiffnet: terminated.\n"), module
    assert not (tmp_path / "run").exists()


LONG = "x" * 300
TRAIN = ["train", "resnet20_cifar", "--data", "generated:20"]


@pytest.mark.parametrize(
    "arguments",
    [
        [*TRAIN, "--out", LONG],
        [*TRAIN, "--out", f"{LONG}/run"],
        ["train", "--resume", "--out", LONG],
        ["train", "resnet20_cifar", "--data", f"./{LONG}"],
        ["train", "resnet20_cifar", "--data", f"cifar10:{LONG}"],
        [*TRAIN, "--recipe", f"./{LONG}.toml"],
        ["measure", "resnet20_cifar", "--data", "digits", "--out", LONG],
        ["measure", "resnet20_cifar", "--data", "digits", "--weights", f"{LONG}.pth"],
        ["measure", f"./{LONG}", "--data", "digits"],
        ["fold", LONG],
        ["demo", "--out", LONG],
    ],
    ids=lambda arguments: " ".join(arguments).replace(LONG, "LONG"),
)
def test_a_name_that_is_too_long_is_named(capsys, tmp_path, arguments):
    assert main(arguments) in (2, 3, 6)
    said = capsys.readouterr().err
    assert LONG in said
    assert said.count("\n") == 1
    assert "Traceback" not in said
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes()]


def test_an_error_of_the_system_names_its_files(capsys, monkeypatch):
    from stiffnet.data import download

    def broken(*args, **kwargs):
        os.rename("nowhere/a", "nowhere/b")

    monkeypatch.setattr(download, "download", broken)
    assert main(["fetch", "cifar10", "place"]) == 6
    said = capsys.readouterr().err
    assert said == (
        "stiffnet: nowhere/a and nowhere/b could not be read or written: No such file or "
        "directory. Check the name, the permissions and the disk, or give another place.\n"
    )


def test_an_error_without_a_file_is_told_as_it_is(capsys, monkeypatch):
    from stiffnet.data import download

    def broken(*args, **kwargs):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(download, "download", broken)
    assert main(["fetch", "cifar10", "place"]) == 6
    assert capsys.readouterr().err == "stiffnet: Cannot allocate memory.\n"
