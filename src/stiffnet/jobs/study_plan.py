"""Which rows studies consist of: every job once, with its address, and the place of its data."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stiffnet.data import open_splits
from stiffnet.data.fingerprint import fingerprint
from stiffnet.data.picture import NAMED
from stiffnet.errors import DataError
from stiffnet.jobs.row_run import DATA, FILES
from stiffnet.jobs.row_store import addressed
from stiffnet.jobs.study_rows import settled
from stiffnet.results.study import StudyRow
from stiffnet.studies.study import Group, Job, Study
from stiffnet.train.perceptual import RANDOM
from stiffnet.words import listed

# What needs no folder and no file:
PLACELESS = {"digits", "generated", "shapes", "tiles", RANDOM, *NAMED}
Settle = Callable[[str, Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Wanted:
    """A row of a study for one seed, and the address at which it will be."""

    group: Group
    row: str
    seed: int
    address: str


@dataclass
class Plan:
    """Everything to compute: what a row needs stands before it, and shared rows stand once."""

    places: Mapping[str, str]
    """What to open, by the name of a data set."""
    settle: Settle = settled
    rows: dict[str, StudyRow] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)
    """What to open, by address."""
    files: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Where the files are that the settings of a row name, by address and setting."""
    prints: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def add(self, job: Job) -> str:
        """Enter a job and what it needs, and return its address."""
        needs = tuple(self.add(each) for each in job.needs)
        settings = self.settle(job.kind, job.settings)
        name = settings.get(DATA)
        files = {
            key: self._place(settings[key]).partition(":")[2]
            for key in FILES
            if settings.get(key) in self.places
        }
        seen = {key: _content(place) for key, place in files.items()}
        row = addressed(job.kind, settings, needs, {**(self._print(name) if name else {}), **seen})
        self.files[row.address] = files
        self.rows.setdefault(row.address, row)
        inherited = next((self.data[need] for need in needs if need in self.data), "")
        self.data[row.address] = self._place(name) if name else inherited
        return row.address

    def _place(self, name: str) -> str:
        return self.places.get(name, name)

    def _print(self, name: str) -> Mapping[str, Any]:
        if name not in self.prints:
            train, test = open_splits(self._place(name))
            self.prints[name] = {"train": fingerprint(train), "test": fingerprint(test)}
        return self.prints[name]


def _content(path: str) -> str:
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(
            f"{path} could not be read: {error.strerror}. Give another file."
        ) from error


def planned(study: Study, scale: str, seeds: int, plan: Plan) -> list[Wanted]:
    """Enter all rows of a study.

    Raises:
        DataError: If data are not there, or it was not said where they are.
    """
    return [
        Wanted(group, label, seed, plan.add(job))
        for group, label, seed, job in study.jobs(scale, seeds)
    ]


def places(given: Iterable[str]) -> dict[str, str]:
    """Return what to open by the name of a data set, from texts such as ``cifar10:DIR``.

    Raises:
        DataError: If one has no folder, or two are of one name.
    """
    found: dict[str, str] = {}
    for text in given:
        name, colon, place = text.partition(":")
        if not colon or not place:
            raise DataError(
                f"`--data {text}` does not say where the data are. Write it as in `cifar10:DIR`."
            )
        if name in found:
            raise DataError(
                f"`--data {found[name]}` and `--data {text}` are both of {name}. Keep one of them."
            )
        found[name] = text
    return found


def check_data(studies: Sequence[Study], scale: str, known: Mapping[str, str]) -> list[str]:
    """See that it was said where every data set is; return a sentence on each that is not used.

    Raises:
        DataError: If not; it names them all.
    """
    used: dict[str, str] = {}
    for study in studies:
        for _, _, _, job in study.jobs(scale, 1):
            for each in job.all():
                for name in (each.settings.get(key) for key in (DATA, *FILES)):
                    if name:
                        used.setdefault(name, study.name)
    missing = {k: v for k, v in used.items() if k not in PLACELESS and k not in known}
    if missing:
        options = " ".join(f"--data {name}:DIR" for name in missing)
        raise DataError(
            f"{next(iter(missing.values()))} at scale {scale} needs {', '.join(missing)}. Say "
            f"where with `{options}`."
        )
    which = studies[0].name if len(studies) == 1 else "any of the studies"
    needs = f"which needs {listed(list(used))}" if used else "which needs no data"
    return [
        f"`--data {text}` is not used by {which} at scale {scale}, {needs}."
        for name, text in known.items()
        if name not in used
    ]
