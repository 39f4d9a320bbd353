"""``stiffnet demo``: the whole story from one seed, ending in a page."""

import shlex
from pathlib import Path
from typing import Annotated

from stiffnet.cli.options import Settings, number, pairs, text
from stiffnet.cli.terminal import Terminal, command_line


def demo(
    out: Annotated[
        Path, text("DIR", "Folder for the runs, the folded network and the report.")
    ] = Path("demo"),
    data: Annotated[
        str, text("DATA", "digits (embedded), cifar10:DIR, or a folder with train/ and val/.")
    ] = "digits",
    seed: Annotated[int, number("Random seed for the weights and the order of the images.")] = 0,
    settings: Settings = [],  # noqa: B006  # typer copies it
) -> None:
    """Train four small networks, measure, fold and time them.

    Takes about two minutes on the embedded digits, and says beforehand how long on other data. It
    ends with an HTML page. A demo that was stopped continues with the same command.
    """
    from stiffnet.jobs.demo import demo as job

    command = command_line()
    made = job(
        out, data=data, settings=pairs(settings), seed=seed, command=command, watcher=Terminal()
    )
    final = list(made.runs.values())[-1].final
    print(
        f"Measure one again: {_measure(final, data)}\n"
        f"Or folded:         {_measure(made.folded, data)}\n"
        f"The report: {made.files[-1]}"
    )


def _measure(folder: Path, data: str = "digits") -> str:
    from stiffnet.data import spec_of_tests
    from stiffnet.jobs.subject import as_argument

    tests = spec_of_tests(data)
    return shlex.join(["stiffnet", "measure", as_argument(folder), "--data", tests])
