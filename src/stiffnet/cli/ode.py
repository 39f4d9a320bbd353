"""``stiffnet ode``: stiffness in differential equations."""

from pathlib import Path
from typing import Annotated

from stiffnet.cli.options import argument, number, text
from stiffnet.cli.terminal import Terminal, command_line


def ode(
    problem: Annotated[
        str, argument("PROBLEM", "A name that `stiffnet list problems` shows. By default all.")
    ] = "",
    runs: Annotated[
        int, number("Number of three-body runs, for each of three durations.", least=1)
    ] = 1000,
    seed: Annotated[int, number("Random seed for the initial states of three bodies.")] = 0,
    out: Annotated[
        Path | None,
        text(
            "DIR",
            "Folder for ode.html and a JSON file for each result. By default ode, or ode/PROBLEM.",
        ),
    ] = None,
) -> None:
    """Solve differential equations, and measure their stiffness.

    Prints tables, and writes JSON files and an HTML page: solutions with their stiffness, stable
    and unstable steps of forward Euler, the steps of an adaptive method, Theorem 2 of the StepNet
    paper, and close encounters of three bodies. All of it takes about a minute.
    """
    from stiffnet.jobs.ode import ode as job

    solved = job(
        problem or None, runs=runs, seed=seed, out=out, command=command_line(), watcher=Terminal()
    )
    print(f"Written: {solved.files[-1]}, and a JSON file for each result beside it")
