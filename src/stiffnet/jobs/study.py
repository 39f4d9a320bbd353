"""Run studies: every row once, in parallel, resumed where it was stopped; then judge them."""

import signal
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from stiffnet.errors import DataError
from stiffnet.jobs.launch import Launcher, LaunchError, LocalProcesses, SlurmJobs, Started
from stiffnet.jobs.places import check_places, write
from stiffnet.jobs.row_run import COMPUTING, OTHERWISE, Order, Task
from stiffnet.jobs.row_store import RowStore
from stiffnet.jobs.study_plan import Plan, Settle, Wanted, check_data, places, planned
from stiffnet.jobs.study_rows import ALONE, LEAVING, TASKS, settled
from stiffnet.jobs.subject import Spec
from stiffnet.jobs.watching import SILENT, Watcher
from stiffnet.provenance import version_of
from stiffnet.report.page import page
from stiffnet.results.study import Line, Printed, Shown, StudyReport, StudyRow
from stiffnet.studies.judged import comparisons, verdict_of
from stiffnet.studies.published import PAPERS
from stiffnet.studies.registry import STUDIES
from stiffnet.studies.study import SCALES, Published, Study
from stiffnet.train.stopping import listening

ALL = "all"
PAGE = "report.html"
MADE_FROM = "it is made from another row, which failed: "


@dataclass(frozen=True)
class Studied:
    """What studies found, and where it was written."""

    reports: tuple[StudyReport, ...]
    files: tuple[Path, ...]

    @property
    def failed(self) -> dict[str, str]:
        """Why rows have no values, by what they are called; a row that studies share is once."""
        found: dict[str, tuple[str, str]] = {}
        for report in self.reports:
            several = len({line.group for line in report.lines}) > 1
            for line in report.failed:
                where = f" ({line.group})" if several else ""
                name = f"{report.name}{where}, {line.row}, seed {line.seed}"
                found.setdefault(line.address, (name, line.error))
        return dict(found.values())


def study(
    name: str,
    *,
    scale: str = "demo",
    seeds: int | None = None,
    data: Sequence[str] = (),
    launcher: str = "local",
    processes: int = 0,
    slurm: Mapping[str, str] | None = None,
    out: Spec = "studies",
    command: str = "",
    watcher: Watcher = SILENT,
) -> Studied:
    """Run a study of the papers, or all of them.

    Args:
        name: A name from `stiffnet list studies`, or ``"all"``.
        scale: ``demo``, ``small`` or ``paper``.
        seeds: How many; None for the scale's own number.
        data: Where data sets and files are, as in ``cifar10:DIR`` and ``vgg16:FILE``.
        launcher: ``local`` or ``slurm``.
        processes: Rows at a time on this machine; 0 for as many as there are cores.
        slurm: What to ask SLURM for, such as ``{"partition": "gpu", "gpus_per_node": "1"}``.
        out: Folder for the rows, the records and the page.
        command: What the user typed, for the record.
        watcher: Whoever follows the job.

    Raises:
        StiffnetError: One of its kinds, if anything given cannot be used. A row that fails is no
            error: it is in the records, with its reason.
    """
    chosen = [e.value for e in STUDIES] if name == ALL else [STUDIES[name].value]
    chosen = [each for each in chosen if scale in each.scales]
    if not chosen:
        raise DataError(f"{name} has no scale {scale!r}. Choose one of {', '.join(SCALES)}.")
    if slurm and launcher != "slurm":
        raise LaunchError(
            "`--slurm` says what to ask SLURM for, and rows would run here. Add `--launcher "
            "slurm`, or leave it out."
        )
    root = Path(out)
    made: Launcher = (
        SlurmJobs(root / "jobs", slurm or {}) if launcher == "slurm" else LocalProcesses(processes)
    )
    return run_studies(
        chosen, scale, root, made, seeds=seeds, data=data, command=command, watcher=watcher
    )


def run_studies(
    studies: Sequence[Study],
    scale: str,
    root: Path,
    launcher: Launcher,
    *,
    seeds: int | None = None,
    data: Sequence[str] = (),
    tasks: Mapping[str, Task] = TASKS,
    settle: Settle = settled,
    command: str = "",
    watcher: Watcher = SILENT,
) -> Studied:
    """Run these studies; see `study`."""
    known = places(data)
    for text in check_data(studies, scale, known):
        watcher.note(text)
    names = [f"{each.name}.{scale}.json" for each in studies]
    check_places(root, *names, PAGE)
    plan = Plan(known, settle)
    wanted = {
        each.name: planned(each, scale, seeds or each.scales[scale].seeds, plan) for each in studies
    }
    store = RowStore(root)
    rows = _computed(plan, store, launcher, tasks, command, watcher)
    reports = tuple(
        reported(each, scale, wanted[each.name], rows, command=command) for each in studies
    )
    for report in reports:
        watcher.found(report)
    what = reports[0].name if len(reports) == 1 else f"{len(reports)} studies"
    drawn = page(reports, heading=f"{what}, at scale {scale}")
    texts = [*(report.to_json() for report in reports), drawn]
    return Studied(reports, write(root, dict(zip([*names, PAGE], texts, strict=True))))


def reported(
    study: Study,
    scale: str,
    wanted: Sequence[Wanted],
    rows: Mapping[str, StudyRow],
    *,
    command: str = "",
) -> StudyReport:
    """Put the rows of a study together, and judge its claim."""
    lines = []
    for each in wanted:
        row = rows[each.address]
        values = study.values(each.row, row.values)
        lines.append(Line(each.group.title, each.row, each.seed, each.address, values, row.error))
    printed = _printed(study.published, wanted)
    columns = tuple(
        Shown(**vars(each) | {"published": _printed(each.published, wanted)})
        for each in study.columns
    )
    made = comparisons(study, lines, printed, columns)
    found = verdict_of(made, study.left_out(scale))
    needed = sorted(_needed((each.address for each in wanted), rows))
    made_by = [rows[address].facts for address in needed]
    took = sum(float(each.get(COMPUTING, each.get("seconds", 0))) for each in made_by)
    facts = {
        "study": study.name,
        "scale": scale,
        "seeds": str(len({each.seed for each in wanted})),
        "rows": str(len({each.address for each in wanted})),
        "computed in": f"{took / 60:.1f} minutes of processor time",
        **{
            name: "; ".join(dict.fromkeys(each[name] for each in made_by if name in each))
            for name in ("versions", "machine")
        },
        "judged by": f"stiffnet {version_of('stiffnet')}",
        **({"command": command} if command else {}),
    }
    return StudyReport(
        name=study.name,
        paper=PAPERS[study.paper],
        locator=study.locator,
        claim=study.claim,
        scale=scale,
        metric=study.metric,
        unit=study.unit,
        lines=tuple(lines),
        published=printed,
        columns=columns,
        exact=study.exact,
        comparisons=made,
        verdict=found.verdict.value,
        why=found.why,
        picture=None if study.picture is None else asdict(study.picture),
        notes=(*study.notes, *_mixed([rows[address] for address in needed])),
        facts=facts,
    )


def _mixed(rows: Sequence[StudyRow]) -> tuple[str, ...]:
    """Say which rows came out otherwise when they were computed again for their folders."""
    return tuple(
        f"{row.address} was computed again and came out otherwise ({row.facts[OTHERWISE]}), so "
        "that rows that were made from it before and after are of two networks. Compute all of "
        "them in a new folder."
        for row in rows
        if OTHERWISE in row.facts
    )


def _printed(known: Published | None, wanted: Sequence[Wanted]) -> Printed:
    """What was published of these rows."""
    if known is None:
        return ()
    rows = {(each.group.title, each.row): each.group for each in wanted}
    return tuple(
        (title, label, value)
        for (title, label), group in rows.items()
        if (value := known.value(label, group)) is not None
    )


def _computed(
    plan: Plan,
    store: RowStore,
    launcher: Launcher,
    tasks: Mapping[str, Task],
    command: str,
    watcher: Watcher,
) -> dict[str, StudyRow]:
    """Compute what is not there yet; what failed before is tried again."""
    rows = {each: there for each in plan.rows if (there := store.finished(each)) is not None}
    lost = _lost(plan, store, rows)
    for address in lost:
        del rows[address]
    waiting = {address: row for address, row in plan.rows.items() if address not in rows}
    threads = 1 if launcher.crowded else 0
    alone = ALONE if launcher.crowded else set()
    with watcher.progress("rows of studies", len(plan.rows)) as advance, _ending() as running:
        advance(len(rows))
        while waiting or running:
            for row in _ready(waiting, rows, running, launcher.slots, alone):
                again, files = row.address in lost, plan.files[row.address]
                order = Order(
                    str(store.root), row, tasks[row.kind], plan.data[row.address], command,
                    threads, again, files,
                )  # fmt: skip
                _start(launcher, order, running)
                del waiting[row.address]
            ended = _hopeless(waiting, rows)
            for address in [each for each, started in running.items() if started.done()]:
                reason = running.pop(address).reason()
                known = store.failed(address)
                if known is None and (address not in lost or _has_left(plan, store, address)):
                    known = store.finished(address)
                ended.append(known or replace(plan.rows[address], error=reason))
            for found in ended:
                waiting.pop(found.address, None)
                rows[found.address] = found
                if found.error:
                    watcher.note(f"{found.address} failed: {found.error}")
                advance(1)
            if running:
                time.sleep(launcher.patience)
    return rows


def _lost(plan: Plan, store: RowStore, rows: Mapping[str, StudyRow]) -> set[str]:
    """Rows that are there without their folders, which rows to be computed have to read.

    That is how rows arrive that were kept or sent without the networks behind them.
    """
    found: set[str] = set()
    for address, row in reversed(plan.rows.items()):  # whoever needs a row stands behind it
        if address not in rows or address in found:
            found |= {
                need for need in row.needs if need in rows and not _has_left(plan, store, need)
            }
    return found


def _has_left(plan: Plan, store: RowStore, address: str) -> bool:
    """Whether the folder of a row has all that rows made from it read there."""
    left = LEAVING.get(plan.rows[address].kind)
    return left is None or left(store.work(address))


def _start(launcher: Launcher, order: Order, running: dict[str, Started]) -> None:
    """Start a row; a signal that comes meanwhile waits, so that what was started can be stopped."""
    with listening() as stop:
        running[order.row.address] = launcher.start(order)
    if stop.number:
        signal.raise_signal(stop.number)


@contextmanager
def _ending() -> Iterator[dict[str, Started]]:
    """Yield what runs; whatever still does at the end is stopped, and waited for."""
    running: dict[str, Started] = {}
    try:
        yield running
    finally:
        for started in running.values():
            started.stop()
        for started in running.values():
            started.join()


def _ready(
    waiting: Mapping[str, StudyRow],
    rows: Mapping[str, StudyRow],
    running: Mapping[str, Any],
    slots: int,
    alone: Collection[str],
) -> list[StudyRow]:
    """Rows that can be started now: those of the kinds `alone` last, and one after the other."""
    if any(address.partition("-")[0] in alone for address in running):
        return []
    able = [
        row for row in waiting.values() if all(n in rows and not rows[n].error for n in row.needs)
    ]
    together = [row for row in able if row.kind not in alone]
    if together or running:
        return together[: slots - len(running)]
    return able[:1]


def _hopeless(waiting: Mapping[str, StudyRow], rows: Mapping[str, StudyRow]) -> list[StudyRow]:
    """Rows that cannot be computed, because one that they are made from has failed."""
    found = []
    for row in waiting.values():
        lost = [rows[need] for need in row.needs if need in rows and rows[need].error]
        if lost:
            reason = lost[0].error.removeprefix(MADE_FROM)  # of the first row that failed
            found.append(replace(row, error=f"{MADE_FROM}{reason}"))
    return found


def _needed(addresses: Iterable[str], rows: Mapping[str, StudyRow]) -> set[str]:
    """Return these addresses, and those of all rows that theirs were made from."""
    found = set(addresses)
    return found.union(*(_needed(rows[address].needs, rows) for address in found))
