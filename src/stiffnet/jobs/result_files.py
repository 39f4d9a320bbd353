"""Results of jobs, written as JSON and as pages."""

from collections.abc import Sequence
from pathlib import Path

from stiffnet.jobs.places import write
from stiffnet.report.page import page
from stiffnet.results.record import Record


def write_result(
    folder: Path, names: Sequence[str], result: Record, heading: str = ""
) -> tuple[Path, ...]:
    """Write a result as JSON and as a page, to files of these names."""
    texts = (result.to_json(), page([result], heading=heading))
    return write(folder, dict(zip(names, texts, strict=True)))
