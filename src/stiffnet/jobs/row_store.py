"""Rows of studies in a folder: addressed by what determines them, each computed once."""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stiffnet.errors import CorruptFileError, StorageError
from stiffnet.files import open_lock, sweep_temporaries
from stiffnet.results.study import StudyRow

FORMAT = 1  # of what a kind of job computes: a new number computes all rows again


def addressed(
    kind: str, settings: Mapping[str, Any], needs: tuple[str, ...], data: Mapping[str, Any]
) -> StudyRow:
    """Plan a row, at an address: a checksum over its kind, its settings, its data and its needs."""
    facts = {"format": FORMAT, "kind": kind, "settings": settings, "needs": needs, "data": data}
    canonical = json.dumps(facts, sort_keys=True, allow_nan=False)
    digest = hashlib.sha256(canonical.encode()).hexdigest()[:16]
    return StudyRow(f"{kind}-{digest}", kind, settings, needs)


@dataclass(frozen=True)
class RowStore:
    """The folder: a file a finished row in ``rows``; in ``work``, what else rows leave behind.

    A row that failed leaves why in ``work/ADDRESS.failed.json``, so that a row that was finished
    before, and was computed again for its folder, is not lost with it. What is there and cannot be
    read, written or removed is a StorageError.
    """

    root: Path

    def file(self, address: str) -> Path:
        """Where a row is kept."""
        return self.root / "rows" / f"{address}.json"

    def work(self, address: str) -> Path:
        """Folder for whatever computing a row leaves behind."""
        return self.root / "work" / address

    def failure(self, address: str) -> Path:
        """Where it is kept why a row has failed."""
        return self.root / "work" / f"{address}.failed.json"

    def finished(self, address: str) -> StudyRow | None:
        """Return a row that has values; None if there is none that is whole."""
        return _whole(self.file(address), address, failed=False)

    def failed(self, address: str) -> StudyRow | None:
        """Return a row that says why it failed when it was last computed."""
        return _whole(self.failure(address), address, failed=True)

    def write(self, row: StudyRow) -> None:
        """Keep a row, or why it failed."""
        row.save(self.failure(row.address) if row.error else self.file(row.address))

    def forget_failure(self, address: str) -> None:
        """Remove what is known of a failure, before a row is computed again."""
        path = self.failure(address)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(
                f"{path} could not be removed: {error.strerror}. Choose another folder."
            ) from error

    @contextmanager
    def locked(self, address: str) -> Iterator[None]:
        """Have a row for oneself, after whoever has it now; the lock goes with the process."""
        path = self.root / "work" / f"{address}.lock"
        handle = open_lock(path, path)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX)
            for file in (self.file(address), self.failure(address)):  # what killed processes left
                sweep_temporaries(file.parent, [file.name])
            yield
        finally:
            with contextlib.suppress(OSError):
                os.close(handle)


def _whole(path: Path, address: str, *, failed: bool) -> StudyRow | None:
    if not path.exists():
        return None
    try:
        row = StudyRow.load(path)
    except CorruptFileError:
        return None
    return row if row.address == address and bool(row.error) is failed else None
