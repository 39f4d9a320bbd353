"""``stiffnet demo``: train a small network on embedded images, measure it, and fold it."""

import shlex
from pathlib import Path
from typing import Annotated

from stiffnet.cli.options import number, text
from stiffnet.cli.terminal import Terminal, show


def demo(
    out: Annotated[
        Path, text("DIR", "Folder for the run, the folded network and the reports.")
    ] = Path("demo"),
    seed: Annotated[int, number("Random seed for the weights and the order of the images.")] = 0,
) -> None:
    """Train a small network on digits, measure it and fold it.

    Takes about two minutes, and ends with an HTML page.
    """
    from stiffnet.jobs.demo import demo as job
    from stiffnet.report.forms import saving
    from stiffnet.report.text import number as written, plain

    made = job(out, seed=seed, watcher=Terminal())
    before, after = made.before, made.after
    show(after)
    print(
        f"TNS went from {written(before.tns)} to {written(after.tns)}, "
        f"accuracy from {before.accuracy:.1%} to {after.accuracy:.1%}.\n"
        f"{plain(saving(made.forms))}\n"
        f"Measure it again: {_measure(made.final)}\n"
        f"Or folded:        {_measure(made.folded)}\n"
        f"The report: {made.files[-1]}"
    )


def _measure(folder: Path) -> str:
    from stiffnet.jobs.subject import as_argument

    return shlex.join(["stiffnet", "measure", as_argument(folder), "--data", "digits:test"])
