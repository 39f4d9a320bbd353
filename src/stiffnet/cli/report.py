"""``stiffnet report``: one page from any number of results."""

from pathlib import Path
from typing import Annotated

from stiffnet.cli.options import argument, text
from stiffnet.cli.terminal import Terminal


def report(
    paths: Annotated[
        list[Path],
        argument("PATH", "A result file, a run, or a folder of such; any number of them."),
    ],
    out: Annotated[
        Path, text("FILE", "Page to write; with .md, its sentences and tables as Markdown.")
    ] = Path("report.html"),
    heading: Annotated[str, text("TITLE", "What the page is called.")] = "",
) -> None:
    """Write one page from any number of results.

    Results are runs, measurements, spectra, stripes, folds, equations and studies. The page carries
    everything that it shows. Every picture can be saved from it, as PNG or with
    its numbers as CSV.
    """
    from stiffnet.jobs.report import report as job

    made = job(paths, out=out, heading=heading, watcher=Terminal())
    print(f"Written: {made.file}, from {made.shown}")
