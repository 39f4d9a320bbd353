"""Solve stiff differential equations, and check what the papers say of them: records and a page."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from platform import python_version

from stiffnet.errors import OdeError
from stiffnet.jobs.places import check_places, write
from stiffnet.jobs.subject import Spec
from stiffnet.jobs.watching import SILENT, Watcher
from stiffnet.ode import adaptive, encounters, euler, solve, theorem2
from stiffnet.ode.problems import PROBLEMS
from stiffnet.ode.vanderpol import vanderpol
from stiffnet.provenance import versions_of
from stiffnet.report.page import page
from stiffnet.results.ode import OdeRecord, OdeRecords

PAGE = "ode.html"
DURATIONS = (20.0, 10.0, 40.0)
"""Of the runs of three bodies; the first is the one that fits the paper's figures best."""
Work = Callable[[], OdeRecord]


@dataclass(frozen=True)
class Solved:
    """What was found, and where it was written."""

    results: dict[str, OdeRecord]
    """By the names of their files, without the ending."""
    files: tuple[Path, ...]
    """A JSON file for each result, and the page."""


def ode(
    problem: str | None = None,
    *,
    runs: int = 1000,
    seed: int = 0,
    out: Spec | None = None,
    command: str = "",
    watcher: Watcher = SILENT,
) -> Solved:
    """Solve a problem, or all of them, and write a JSON file for each result and ``ode.html``.

    Every problem is solved by Radau. Those with an exact solution that decays are also solved by
    forward Euler, those for which an explicit method is possible by RKF45. Theorem 2 comes with
    ``linear``, and the encounters of many triples with ``threebody``.

    Args:
        problem: A name of `stiffnet.ode.PROBLEMS`, or None for all of them.
        runs: How many triples of bodies move, for each of `DURATIONS`.
        seed: Random seed of their initial states.
        out: Folder for the files; None for ``ode``, or ``ode/PROBLEM``.
        command: What the user typed, for the record.
        watcher: Whoever follows the job.

    Raises:
        UnknownNameError: If there is no problem of that name; nothing is written then.
        OdeError: If there are no runs, or a solver gives up.
        StorageError: If the files cannot be written.
    """
    names = [entry.name for entry in PROBLEMS] if problem is None else [PROBLEMS[problem].name]
    if runs < 1:
        raise OdeError(f"There is nothing to count in {runs} runs. Ask for one or more.")
    folder = Path("ode", *([] if problem is None else names)) if out is None else Path(out)
    works = {
        f"{name}-{what}": work
        for name in names
        for what, work in _works(name, runs=runs, seed=seed).items()
    }
    check_places(folder, *(f"{name}.json" for name in works), PAGE)
    facts = {"versions": versions_of("stiffnet", "numpy", "scipy"), "python": python_version()}
    facts |= {"command": command} if command else {}
    results: dict[str, OdeRecord] = {}
    with watcher.progress("solving", len(works)) as advance:
        for name, work in works.items():
            results[name] = replace(work(), facts=facts)
            advance(1)
    found = list(results.values())
    watcher.found(OdeRecords(tuple(found)))
    heading = "Stiffness in differential equations" + (f": {problem}" if problem else "")
    texts = {f"{name}.json": record.to_json() for name, record in results.items()}
    return Solved(results, write(folder, texts | {PAGE: page(found, heading=heading)}))


def _works(name: str, *, runs: int, seed: int) -> dict[str, Work]:
    """Return what there is to do for a problem, by the ends of the files' names."""
    works: dict[str, Work] = {"solution": partial(solve.run, name)}
    if name in ("eq8", "linear"):
        works["euler"] = partial(euler.run, name)
    if name in _EXPLICIT:
        works["steps"] = _EXPLICIT[name]
    if name == "linear":
        works["theorem2"] = theorem2.run
    if name == "threebody":
        for duration in DURATIONS:
            count = partial(encounters.run, runs, seed=seed, duration=duration)
            works[f"encounters-{duration:g}"] = count
    return works


_EXPLICIT: dict[str, Work] = {
    "eq8": partial(adaptive.run, "eq8"),
    "linear": partial(adaptive.run, "linear"),
    "vanderpol": lambda: adaptive.run(vanderpol(1e-3)),  # a thousandth as stiff as the table's
    "robertson": partial(adaptive.run, "robertson", until=10.0),  # of 1e11
    "threebody": partial(adaptive.run, "threebody"),
}
"""How an explicit method can solve a problem; POLLU would take 1e11 steps for one unit of time."""
