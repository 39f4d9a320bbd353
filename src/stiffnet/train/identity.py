"""Which run it is, and which data it learns from: one small file, in the folder and in its parts.

A folder that holds such a file of a run is the run's own, and nothing else is: what a run removes
or replaces is only what it wrote itself.
"""

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from stiffnet.data.fingerprint import Fingerprint, difference, fingerprint
from stiffnet.errors import DataError
from stiffnet.schema import parsed
from stiffnet.train.loop import Lesson
from stiffnet.words import few

RUN = "run.json"
FORMAT: Literal["stiffnet run, version 1"] = "stiffnet run, version 1"
LARGEST = 16 * 2**20  # bytes; twenty thousand class names take half a megabyte
SHOWN = 4  # names of classes in a sentence


@dataclass(frozen=True)
class Identity:
    """A name that no other run has, and what its data were when it began."""

    run: str = ""
    classes: tuple[str, ...] = ()
    train: Fingerprint = field(default_factory=dict)
    test: Fingerprint = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Beside the data: SHA-256 of each, by what it is called. Most tasks have none."""

    def to_json(self) -> str:
        """Write it down."""
        told = {key: value for key, value in vars(self).items() if value or key != "files"}
        return json.dumps({"format": FORMAT, **told}, indent=1) + "\n"


class _File(Struct, forbid_unknown_fields=True):
    """What the file has to hold."""

    format: Literal["stiffnet run, version 1"]
    run: Annotated[str, Meta(pattern=r"^[0-9a-f]*\Z")]
    classes: tuple[str, ...]
    train: dict[str, int | str]
    test: dict[str, int | str]
    files: dict[str, str] = {}

    def __post_init__(self) -> None:
        for key, value in (*self.train.items(), *self.test.items()):
            if isinstance(value, int) != (key == "images"):
                raise ValueError(f"{key!r} is of the wrong type")


def new_identity(lesson: Lesson) -> Identity:
    """Return the identity of a run that begins now."""
    return Identity(
        run=uuid.uuid4().hex,
        classes=lesson.train.classes,
        train=fingerprint(lesson.train),
        test=fingerprint(lesson.test),
        files={name: _content(name, path) for name, path in lesson.task.files().items()},
    )


def _content(name: str, path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(
            f"{path}, the {name}, could not be read: {error.strerror}. Bring it back."
        ) from error


def read_identity(folder: Path) -> Identity | None:
    """Return what the file in a folder says; None if it is missing, or not one of ours."""
    try:
        with (folder / RUN).open("rb") as stream:
            return identity_from(stream.read(LARGEST))
    except OSError:
        return None


def identity_from(raw: bytes) -> Identity | None:
    """Return what such a file says; None if it is not one of ours."""
    try:
        said: _File = parsed(raw, _File)
    except ValueError:
        return None
    return Identity(said.run, said.classes, said.train, said.test, said.files)


def is_of(folder: Path, run: str) -> bool:
    """Whether a folder was written by a run; a link to one is not."""
    found = None if folder.is_symlink() else read_identity(folder)
    return found is not None and found.run == run


def check_same_data(began: Identity, now: Identity, *, where: str) -> None:
    """Raise a DataError that says what differs, unless the data are those that a run began with."""
    differs = [
        difference(began.train, now.train, "training images"),
        difference(began.test, now.test, "test images"),
    ]
    for name in began.files.keys() | now.files.keys():
        if began.files.get(name) != now.files.get(name):
            differs.append(f"the {name} is now another file")
    if began.classes != now.classes:
        differs.insert(0, _other_classes(began.classes, now.classes))
    if any(differs):
        raise DataError(
            f"{where} began with other data: {'; '.join(filter(None, differs))}. Restore the data "
            "that it began with, or start a new run in another folder."
        )


def _other_classes(before: Sequence[str], now: Sequence[str]) -> str:
    gone = [name for name in before if name not in set(now)]
    new = [name for name in now if name not in set(before)]
    if not gone and not new:
        return f"its classes were {_few(before)} in this order, and are {_few(now)} now"
    return f"its classes {_few(gone)} are gone, and {_few(new)} are new"


def _few(names: Sequence[str]) -> str:
    return few(map(repr, names), SHOWN)
