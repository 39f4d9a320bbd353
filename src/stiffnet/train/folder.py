"""The folder of one run: whose it is, what is in it, and a log that a crash cannot tear."""

import fcntl
import json
import os
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stiffnet.errors import StorageError
from stiffnet.files import atomic_write
from stiffnet.network.folder import MANIFEST


@dataclass(frozen=True)
class RunFolder:
    """Where the parts of a run lie."""

    path: Path

    @property
    def recipe(self) -> Path:
        """The recipe of the run; there before anything else is."""
        return self.path / "recipe.toml"

    @property
    def log(self) -> Path:
        """A line of JSON for each finished epoch."""
        return self.path / "log.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Where the run stands, while it runs."""
        return self.path / "checkpoints"

    @property
    def final(self) -> Path:
        """The network after the last epoch, when the run is finished."""
        return self.path / "final"

    @property
    def best(self) -> Path:
        """The network of the epoch with the best test accuracy."""
        return self.path / "best"

    @property
    def attention(self) -> Path:
        """Step sizes that attached modules chose, a file for each epoch, if asked for."""
        return self.path / "attention"

    @property
    def folded(self) -> Path:
        """The network after the last epoch, folded, if somebody did."""
        return self.path / "folded"

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end."""
        return (self.final / MANIFEST).exists()

    def clear(self) -> None:
        """Remove the run; what somebody else put into the folder stays."""
        self.recipe.unlink(missing_ok=True)
        self.log.unlink(missing_ok=True)
        for part in (self.checkpoints, self.final, self.best, self.attention, self.folded):
            shutil.rmtree(part, ignore_errors=True)

    def write_log(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Replace the log in one go, so that it always holds whole lines that belong together."""
        atomic_write(self.log, "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))

    def read_log(self) -> list[dict[str, Any]]:
        """Return the rows of the log.

        Raises:
            StorageError: If it is gone.
        """
        try:
            return [json.loads(line) for line in self.log.read_text().splitlines()]
        except OSError as error:
            raise StorageError(
                f"{self.log} could not be read: {error.strerror}. The network is in {self.final}."
            ) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other run out of the folder; the lock goes with the process, however it ends.

        Raises:
            StorageError: If another run holds the folder, or it cannot be written to.
        """
        path = self.path / "run.lock"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise StorageError(
                f"{self.path} could not be written: {error.strerror}. Choose another folder."
            ) from error
        try:
            _lock(handle, path)
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {platform.node()}".encode(), 0)
            yield
            os.ftruncate(handle, 0)
        finally:
            os.close(handle)


def _lock(handle: int, path: Path) -> None:
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # not flock: workers would hold it too
    except (BlockingIOError, PermissionError) as error:
        holder = os.pread(handle, 200, 0).decode(errors="replace") or "another process"
        raise StorageError(
            f"A run is under way in {path.parent}, by {holder}. Wait for it, or choose another "
            "folder."
        ) from error
