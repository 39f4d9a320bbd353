"""Gather results from files and folders, and write one page of them."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stiffnet.errors import CorruptFileError, DataError, StiffnetError
from stiffnet.files import HEAD
from stiffnet.jobs.places import check_places, write
from stiffnet.jobs.subject import Spec
from stiffnet.jobs.watching import SILENT, Watcher
from stiffnet.network.model_folder import MANIFEST
from stiffnet.report.kinds import KINDS
from stiffnet.report.markdown import markdown
from stiffnet.report.page import page
from stiffnet.results.demo import DemoReport
from stiffnet.results.record import Record
from stiffnet.results.study import StudyReport
from stiffnet.results.training import TrainingLog
from stiffnet.train.identity import RUN
from stiffnet.train.log import read_log, sealed_log
from stiffnet.train.recipe_file import build_recipe
from stiffnet.train.run_folder import RunFolder
from stiffnet.words import few, listed

MOST = 10_000  # files that are looked at


def _saved(kinds: Iterable[type]) -> Iterator[type[Record]]:
    """Yield the kinds that have files: those that have a name, and not what they derive from."""
    for kind in kinds:
        if issubclass(kind, Record) and hasattr(kind, "KIND"):
            yield kind
        else:
            yield from _saved(kind.__subclasses__())


RECORDS = {kind.KIND: kind for kind in _saved(KINDS)}
"""Kinds of results by what their files say that they are."""
FACTS = ("model", "attention", "data", "seed", "epochs", "batch_size", "learning_rate", "schedule")
_WHOLE = (StudyReport.KIND, DemoReport.KIND)  # hide the runs and results that they were made of
FIRST = (DemoReport, StudyReport, TrainingLog)  # in this order; then the others as they come


@dataclass(frozen=True)
class Reported:
    """A page, and what is on it."""

    file: Path
    results: tuple[Record, ...]

    @property
    def shown(self) -> str:
        """What it was made from, in words."""
        return _counted(self.results)


def report(
    paths: Sequence[Spec],
    *,
    out: Spec = "report.html",
    heading: str = "",
    watcher: Watcher = SILENT,
) -> Reported:
    """Write one page, or a Markdown document, of all results that these files and folders hold.

    Of a run, its log is shown; of a folder of studies, their records and not their single rows.
    A file that is given several times is shown once. What is not ours is passed over with a note.

    Args:
        paths: Files that `save` wrote, runs, and folders with such in them.
        out: The page; a name that ends in ``.md`` for a document without pictures.
        heading: What it is called; what it shows where nothing is given.
        watcher: Whoever follows the job.

    Raises:
        StorageError: If a path is not there, or the page cannot be written.
        DataError: If there is nothing to show.
    """
    target = Path(out)
    if target.suffix not in (".html", ".md"):
        raise DataError(f"{out} is not the name of a page. Give one that ends in .html or .md.")
    check_places(target.parent, target.name)
    by_file: dict[Path, tuple[Record, Path]] = {}
    for path in map(Path, paths):
        os.stat(path)  # which says so if it is not there
        for each, file in _results(path, watcher):
            if file != target:
                by_file.setdefault(file.resolve(), (each, file))
    found = list(by_file.values())
    if not found:
        named = listed([str(path) for path in paths])
        raise DataError(
            f"There is nothing to show in {named}. Give runs, or files that `stiffnet measure`, "
            "`spectrum`, `stripes`, `gradcam`, `fold`, `ode` or `study` wrote."
        )
    found.sort(key=lambda pair: _rank(pair[0]))
    shown = [each for each, _ in found]
    write_out = markdown if target.suffix == ".md" else page
    heading = heading or f"Report of {_counted(shown)}"
    text = write_out(shown, titles=_titles(found), heading=heading)
    [file] = write(target.parent, {target.name: text})
    return Reported(file, tuple(shown))


def _results(path: Path, watcher: Watcher) -> Iterator[tuple[Record, Path]]:
    """Yield what a path holds: a file's result, a run's log, or all that is in a folder."""
    if not path.is_dir():
        try:
            yield _read(path), path
        except StiffnetError as error:
            watcher.note(f"{path} is left out: {error}")
        return
    strange: list[Path] = []
    for number, file in enumerate(_files(path)):
        if number >= MOST:
            watcher.note(f"Only the first {MOST:,} files of {path} were looked at.")
            break
        try:
            yield log_of(file.parent) if _is_log(file) else _read(file), file
        except StiffnetError as error:
            if _is_log(file) or _kind(file) in RECORDS:
                watcher.note(f"{file} is left out: {error}")
            else:
                strange.append(file)
    if strange:
        were = "were" if len(strange) > 1 else "was"
        shown = few(map(str, strange), 1)
        watcher.note(f"{shown} of {path} {were} passed over: not results of ours.")


def _files(folder: Path) -> Iterator[Path]:
    """Yield files that may hold results, in order; of runs, studies and demos no inner folder."""
    names = sorted(entry.name for entry in folder.iterdir())
    run = RunFolder(folder)
    if run.recipe.exists() and (run.log.exists() or run.finished):
        yield run.log
    records = [folder / name for name in names if name.endswith(".json")]
    yield from (file for file in records if file.name not in (RUN, MANIFEST))
    if run.recipe.exists() or any(_kind(file) in _WHOLE for file in records):
        return
    for name in names:
        inner = folder / name
        if inner.is_dir() and not inner.is_symlink() and not name.startswith("."):
            yield from _files(inner)


def _is_log(file: Path) -> bool:
    return file.name == RunFolder(file.parent).log.name


def _read(file: Path) -> Record:
    kind = RECORDS.get(_kind(file))
    if kind is None:
        raise CorruptFileError("it is not a result that a page shows.")
    return kind.load(file)


def _kind(file: Path) -> str:
    """What a file says that it is: the first line of ours after the brace has its format."""
    try:
        with open(file, "rb") as stream:
            head = stream.read(HEAD).decode(errors="replace")
    except OSError:
        return ""
    key, _, rest = head.partition('"format": ')
    if not rest or "{" not in key:
        return ""
    try:
        text, _ = json.JSONDecoder().raw_decode(rest)
    except ValueError:
        return ""
    return str(text).removeprefix("stiffnet ").rpartition(", version")[0]


def log_of(folder: Path) -> TrainingLog:
    """Return the log of the run in a folder, with what matters of its recipe.

    Of a finished run both are read in its last network, where they are sealed; those beside it may
    have been changed since.
    """
    run = RunFolder(folder)
    rows = sealed_log(run.final) if run.finished else None
    recipe = asdict(build_recipe((run if rows is None else RunFolder(run.final)).recipe))
    facts = {key.replace("_", " "): str(recipe[key]) for key in FACTS}
    rows = read_log(run.log) if rows is None else rows
    return TrainingLog(tuple(rows), run.finished, {**facts, "run": str(folder)})


def _rank(result: Record) -> int:
    return next((i for i, kind in enumerate(FIRST) if isinstance(result, kind)), len(FIRST))


def _titles(found: Sequence[tuple[Record, Path]]) -> list[str]:
    """Names of the results; where two of a kind have the same, with the place of their files."""
    own = Counter((type(each), each.title) for each, _ in found)
    return [
        f"{each.title} ({file.parent.name})"
        if own[type(each), each.title] > 1 and not isinstance(each, FIRST)
        else ""
        for each, file in found
    ]


def _counted(results: Sequence[Any]) -> str:
    """Say how many results of each kind there are.

    >>> from stiffnet.results.ode import OdeSolution
    >>> _counted([OdeSolution, OdeSolution, StudyReport])
    '2 solutions of a differential equation and 1 study'
    """
    counts = Counter(each.KIND for each in results)
    return listed(
        [f"{many} {_plural(kind) if many > 1 else kind}" for kind, many in counts.items()]
    )


def _plural(kind: str) -> str:
    head, of, rest = kind.partition(" of ")
    known = {"study": "studies", "spectrum": "spectra", "spectra": "spectra"}
    return f"{known.get(head, f'{head}s')}{of}{rest}"
