"""``stiffnet study``: run a question of the papers again, and judge its answer."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from stiffnet.cli.options import argument, choice, number, pairs, text
from stiffnet.cli.terminal import Terminal, command_line

FAILED = 1  # exit code where a row has failed
Size = Literal["demo", "small", "paper"]
Where = Literal["local", "slurm"]


def study(
    name: Annotated[str, argument("NAME", "A name from `stiffnet list studies`, or all.")],
    scale: Annotated[
        Size, choice(Size, "demo: digits, minutes; small: CIFAR-10, hours; paper: as published.")
    ] = "demo",
    seeds: Annotated[int, number("Number of seeds; 0: the scale's own, which is 3.")] = 0,
    data: Annotated[
        list[str] | None, text("NAME:DIR", "Where a data set is, e.g. cifar10:DIR; repeatable.")
    ] = None,
    launcher: Annotated[
        Where, choice(Where, "Run rows in processes here, or as SLURM jobs.")
    ] = "local",
    processes: Annotated[int, number("Rows at a time here; 0: one for each core.")] = 0,
    slurm: Annotated[
        list[str] | None,
        text(
            "KEY=VALUE",
            "What each SLURM job asks for, e.g. partition=gpu or timeout_min=240; repeatable.",
        ),
    ] = None,
    out: Annotated[Path, text("DIR", "Folder for rows, records and the page.")] = Path("studies"),
) -> None:
    """Run a study of the papers again, and judge what it claims.

    Rows that are finished are never computed again, so that the same command continues after a
    kill, and tries again what failed. Ends with code 1 if a row failed; the others are kept.
    """
    from stiffnet.jobs.study import study as job

    studied = job(
        name,
        scale=scale,
        seeds=seeds or None,
        data=data or [],
        launcher=launcher,
        processes=processes,
        slurm=pairs(slurm or [], "--slurm KEY=VALUE", empty=False),
        out=out,
        command=command_line(),
        watcher=Terminal(),
    )
    for report in studied.reports:
        print(f"{report.name}: {report.verdict}. {report.why}")
    print(f"The report: {studied.files[-1]}")
    if studied.failed:
        many = "1 row" if len(studied.failed) == 1 else f"{len(studied.failed)} rows"
        print(f"stiffnet: {many} failed; the same command tries again:", file=sys.stderr)
        for row, reason in studied.failed.items():
            print(f"  {row}: {reason}", file=sys.stderr)
        raise typer.Exit(FAILED)
