"""The log of a run: a line of JSON for each epoch, which nothing can damage for good.

What a run has learnt of itself is in its checkpoints and, when it is finished, sealed in its last
network. The log beside them is for people, and is rewritten from there.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stiffnet.errors import CorruptFileError, StorageError
from stiffnet.files import atomic_write, read_file
from stiffnet.network.model_folder import read_folder
from stiffnet.train.checkpoint import LOG, unused
from stiffnet.train.state import Row, read_row

REMEDY = ". Restore a copy of it, or delete it."


def log_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as the log has them."""
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)


def write_log(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace the log in one go, so that it always holds whole lines that belong together."""
    atomic_write(path, log_text(rows))


def read_log(path: Path, column: str = "epoch") -> list[Row]:
    """Return the rows of a log, all of which have a number in a certain column.

    Raises a CorruptFileError that says which line is wrong, and how, if a run would not write it.
    """
    lines = read_file(path, "Move it away, or restore a copy of it.").split(b"\n")
    if lines[-1]:
        raise _damaged(path, len(lines), "was cut off")
    rows: list[Row] = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            row = read_row(line)
        except ValueError as error:
            raise _damaged(path, number, str(error).removeprefix("it ")) from error
        if row["epoch"] != number:
            raise _damaged(path, number, f"is epoch {row['epoch']}")
        if row.get(column) is None:
            raise _damaged(path, number, f"has no {column!r}")
        rows.append(row)
    if not rows:
        raise _damaged(path, 1, "is empty")
    return rows


def finished_log(path: Path, network: Path, column: str) -> tuple[list[Row], list[str]]:
    """Return the rows of a finished run, and what had to be restored.

    A copy of the log is sealed in `network`, the folder of the last one. Every row must have the
    `column` that the best epoch is chosen by.
    """
    rows = sealed_log(network, column)
    if rows is None:
        return read_log(path, column), []
    return rows, restore_log(path, rows)


def sealed_log(network: Path, column: str = "epoch") -> list[Row] | None:
    """Return the rows that a finished run sealed in its last network; None in older versions."""
    sealed = LOG in read_folder(network).parts
    return read_log(network / LOG, column) if sealed else None


def restore_log(path: Path, rows: Sequence[Row]) -> list[str]:
    """Write the rows to the log, and say what was there instead, which is set aside.

    Rows of later epochs, which will be run again, are no damage.
    """
    notes = []
    if fault := _fault(path, rows):
        aside = unused(path.with_name(f"{path.stem}.damaged{path.suffix}"))
        os.rename(path, aside)
        notes = [f"{fault} It is now {aside}, and {path} was restored."]
    write_log(path, rows)
    return notes


def _fault(path: Path, rows: Sequence[Row]) -> str:
    """Say what is wrong with a log; nothing if it is missing, which a run can mend."""
    if not os.path.lexists(path):
        return ""
    try:
        found = read_log(path) if path.stat().st_size else []
    except CorruptFileError as error:
        return f"{str(error).removesuffix(REMEDY)}."
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"{path} could not be read: {error.strerror}. Move it away; it is written again."
        ) from error
    for number, (row, there) in enumerate(zip(rows, found, strict=False), start=1):
        if row != there:
            return f"{path}, line {number}, is not what the run wrote."
    return ""


def _damaged(path: Path, number: int, how: str) -> CorruptFileError:
    return CorruptFileError(f"{path} is damaged: line {number} {how}{REMEDY}")
