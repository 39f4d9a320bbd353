"""The folder of one run: whose it is, what is in it, and how one run has it for itself."""

import contextlib
import fcntl
import os
import platform
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stiffnet.errors import CheckpointError, StorageError
from stiffnet.files import open_lock, sweep_temporaries
from stiffnet.network.model_folder import FOLDED, MANIFEST, read_folder
from stiffnet.network.step_sizes import VALUES, epoch_of
from stiffnet.train.checkpoint import (
    LOG,
    discard,
    discard_all,
    is_folder,
    strange_files,
    strangers,
    sweep,
    sweep_model,
)
from stiffnet.train.identity import RUN, is_of, read_identity
from stiffnet.train.recipe_file import RECIPE

LOCK = "run.lock"
HOLDER = re.compile(rb"process \d+ on .*")  # or nothing: what a lock of ours says
_HELD: set[Path] = set()  # folders of the runs of this process
_HELD_GUARD = threading.Lock()


class RunFolder:
    """Where the parts of a run lie."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe = path / RECIPE  # there before anything else is
        self.log = path / LOG  # a line of JSON for each finished epoch
        self.checkpoints = path / "checkpoints"  # where the run stands, while it runs
        self.final = path / "final"  # the network after the last epoch, when the run is finished
        self.best = path / "best"  # the network of the best epoch, as the task chooses it
        self.attention = path / VALUES  # step sizes, a file for each epoch, if asked for
        self.folded = path / "folded"  # the network after the last epoch, folded, if it was
        self.places = (self.checkpoints, self.final, self.best, self.attention, self.folded)

    @property
    def owner(self) -> str:
        """The run that the folder belongs to; nothing if it belongs to none."""
        found = read_identity(self.path)
        return "" if found is None else found.run

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end."""
        return (self.final / MANIFEST).exists()

    @property
    def taken(self) -> list[str]:
        """Names of what is there and a run would write itself."""
        names = (RUN, RECIPE, LOG, *(part.name for part in self.places))
        return [name for name in names if os.path.lexists(self.path / name)]

    def strangers(self, run: str) -> list[Path]:
        """Return other files in the places of the run's own."""
        found = strangers(self.checkpoints, run)
        for part in (self.final, self.best):
            found += strange_files(part, run)
        if os.path.lexists(self.folded) and not _is_folded(self.folded):
            found.append(self.folded)
        if self.attention.is_symlink():
            found.append(self.attention)
        return [*found, *(path for path in _entries(self.attention) if not _is_value(path))]

    def sweep(self, run: str) -> None:
        """Remove what a killed process of the run left half written; nothing else is looked at."""
        sweep_temporaries(self.path, (RUN, RECIPE, LOG))
        if run:
            sweep(self.checkpoints, run)
            for path in (self.final, self.best):
                sweep_model(path, run)

    def clear(self, run: str) -> None:
        """Remove the run, but for the file that says whose the folder is.

        Other files in the folder stay.
        """
        for file in (self.recipe, self.log):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file)
        self.sweep(run)
        discard_all(self.checkpoints, run)
        for part in (self.best, self.final):
            if is_of(part, run):
                discard(part)
        for file in _entries(self.attention):
            if _is_value(file):
                os.unlink(file)
        if _is_folded(self.folded):
            discard(self.folded, (MANIFEST, *read_folder(self.folded).parts))
        with contextlib.suppress(OSError):
            os.rmdir(self.attention)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other run out of the folder; the lock goes with the process, however it ends.

        Raises a StorageError if another run holds the folder, or something is in the way of the
        lock.
        """
        with _held(self.path):
            path = self.path / LOCK
            if not _is_lock(path):
                raise StorageError(
                    f"{path} was not written by a run, so it was left alone. Move it away, or "
                    "choose another folder."
                )
            handle = open_lock(path, self.path)
            try:
                _lock(handle, path)
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"process {os.getpid()} on {platform.node()}".encode(), 0)
                try:
                    yield
                finally:
                    os.ftruncate(handle, 0)
            finally:
                os.close(handle)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Keep other threads out of a folder: a lock of the system is the whole process's.

    They may not even look at the lock, since it goes as soon as any of them closes its file.
    """
    place = folder.resolve()
    with _HELD_GUARD:
        if place in _HELD:
            raise _under_way(folder, "another thread of this process")
        _HELD.add(place)
    try:
        yield
    finally:
        with _HELD_GUARD:
            _HELD.remove(place)


def _lock(handle: int, path: Path) -> None:
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # not flock: workers would hold it too
    except (BlockingIOError, PermissionError) as error:
        holder = os.pread(handle, 200, 0).decode(errors="replace") or "another process"
        raise _under_way(path.parent, holder) from error


def _under_way(folder: Path, holder: str) -> StorageError:
    return StorageError(
        f"A run is under way in {folder}, by {holder}. Wait for it, or choose another folder."
    )


def _is_lock(path: Path) -> bool:
    """Whether a lock of ours is there, or nothing at all."""
    if not os.path.lexists(path):
        return True
    try:
        content = b"" if path.is_symlink() else path.read_bytes()
    except OSError:
        return False
    return not path.is_symlink() and (not content or HOLDER.fullmatch(content) is not None)


def _is_folded(path: Path) -> bool:
    """Whether a folder holds a folded network of ours."""
    try:
        return not path.is_symlink() and read_folder(path).form == FOLDED
    except (CheckpointError, StorageError):
        return False


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if is_folder(folder) else []


def _is_value(path: Path) -> bool:
    return epoch_of(path) is not None and not path.is_symlink() and path.is_file()
