"""Results of jobs, written as JSON and as pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from stiffnet.jobs.places import write
from stiffnet.jobs.watching import Watcher
from stiffnet.report.page import page
from stiffnet.results.record import Record

Report = TypeVar("Report", bound=Record)


@dataclass(frozen=True)
class Written(Generic[Report]):
    """A report, and where it was written."""

    report: Report
    files: tuple[Path, ...]
    """A JSON file and a page; under torchrun only the first rank writes any."""


def write_result(
    folder: Path,
    names: Sequence[str],
    result: Record,
    watcher: Watcher,
    *,
    heading: str = "",
    first: bool = True,
) -> tuple[Path, ...]:
    """Show a result, then write it as JSON and as a page of these names; the first rank alone."""
    if not first:
        return ()
    watcher.found(result)
    texts = (result.to_json(), page([result], heading=heading))
    return write(folder, dict(zip(names, texts, strict=True)))
