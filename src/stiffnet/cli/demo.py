"""``stiffnet demo``: the whole story from one seed, ending in a page."""

from pathlib import Path
from typing import Annotated

from stiffnet.cli.options import Settings, number, pairs, text
from stiffnet.cli.terminal import Terminal, command_line, measuring


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
        f"Measure one again: {measuring(final, data)}\n"
        f"Or folded:         {measuring(made.folded, data)}\n"
        f"The report: {made.files[-1]}"
    )
