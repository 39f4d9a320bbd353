"""Commands know jobs and the terminal, never each other; jobs know no command."""

import ast
from pathlib import Path

from imports import imports, modules
from stiffnet import cli, jobs
from stiffnet.cli.app import app

SHARED = {"command", "following", "options", "terminal"}
DOORS = {"app", "main"}


def of_ours(package):
    """What each file of a room imports of the package, by the file's name."""
    files = modules(Path(package.__file__).parent)
    return {
        name.rpartition(".")[2]: set(imports(ast.parse(file.read_text())))
        for name, file in files.items()
    }


def test_no_command_imports_another():
    found = of_ours(cli)
    places = [command.callback.__module__ for command in app.registered_commands]
    commands = {place.rpartition(".")[2] for place in places}
    assert commands == set(found) - SHARED - DOORS - {"cli"}
    for name in commands | SHARED:
        others = {f"stiffnet.cli.{other}" for other in (commands | DOORS) - {name}}
        for target in found[name]:
            assert not any(f"{target}.".startswith(f"{other}.") for other in others), (name, target)


def test_jobs_import_no_command_and_never_look_at_the_command_line():
    for name, targets in of_ours(jobs).items():
        for target in targets:
            assert not f"{target}.".startswith(("stiffnet.cli.", "sys.", "typer.")), (name, target)


def test_every_command_that_computes_has_a_job_of_its_name():
    wanted = {
        "demo",
        "fold",
        "gradcam",
        "measure",
        "ode",
        "report",
        "spectrum",
        "stripes",
        "study",
        "train",
    }
    assert wanted <= set(of_ours(jobs))
