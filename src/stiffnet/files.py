"""Files: read in one go, and written so that a crash leaves the old or the new, never half."""

import contextlib
import errno
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from stiffnet.errors import StorageError

MARK = ".stiffnet."  # begins the name of every temporary file of ours
HEAD = 16_384  # bytes of a file in which it says whose it is


def read_file(path: str | os.PathLike[str], remedy: str, most: int = -1) -> bytes:
    """Return a file's content, or its first bytes; a StorageError says what to do if it cannot."""
    try:
        with open(path, "rb") as stream:
            return stream.read(most)
    except OSError as error:
        said = error.strerror or error
        raise StorageError(f"{path} could not be read: {said}. {remedy}") from error


def atomic_write(path: str | os.PathLike[str], content: bytes | str) -> Path:
    """Write `content` to `path`, making its folder if it is not there; see `atomic_write_all`."""
    return atomic_write_all({path: content})[0]


def atomic_write_all(files: Mapping[str | os.PathLike[str], bytes | str]) -> list[Path]:
    """Write several files, or none of them.

    Each content goes to a temporary file in the folder of its target and is flushed to the disk.
    Only when all are there are they renamed, and the folders flushed. Until then the old files are
    untouched.

    Raises:
        StorageError: If anything on the way fails; the temporary files are gone then.
    """
    waiting: dict[Path, str] = {}
    target = Path()
    try:
        for path, content in files.items():
            target = Path(path)
            _write_beside(target, content, waiting)
        for target, temporary in waiting.items():
            os.replace(temporary, target)
        for folder in dict.fromkeys(path.parent for path in waiting):
            _sync_folder(folder)
    except OSError as error:
        raise _failed(target, "written", error) from error
    finally:
        for temporary in waiting.values():
            with contextlib.suppress(OSError):
                os.unlink(temporary)
    return list(waiting)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise a StorageError if a folder can be neither written to nor made; nothing is made.

    Call it before long work that ends there.
    """
    try:
        folder = Path(path).absolute()
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _failed(path, "written", error) from error


def check_replaceable(path: str | os.PathLike[str], sign: str) -> None:
    """Raise a StorageError if a file is there whose beginning does not hold `sign`, as ours do."""
    if not os.path.lexists(path):
        return
    try:
        with open(path, "rb") as stream:
            ours = sign.encode() in stream.read(HEAD)
    except OSError as error:
        raise _failed(path, "replaced", error) from error
    if not ours:
        raise StorageError(
            f"{path} is there and was not written by this program, so it stays. Choose another "
            "folder, or move it away."
        )


def open_lock(path: Path, place: Path) -> int:
    """Open a lock file, making its folder if need be; a StorageError says that `place` cannot be.

    Returns its handle; `fcntl.lockf` on it holds as long as the process lives.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise StorageError(
            f"{place} could not be written: {error.strerror}. Choose another folder."
        ) from error


def sweep_temporaries(folder: str | os.PathLike[str], names: Iterable[str]) -> None:
    """Remove the temporary files that a killed process left beside files of these names.

    Only names that `atomic_write` makes are removed, only plain files, and in this folder alone.
    """
    wanted = tuple(names)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as found:
        for entry in found:
            if is_temporary(entry.name, wanted) and entry.is_file(follow_symlinks=False):
                os.unlink(entry)


def is_temporary(name: str, names: Iterable[str]) -> bool:
    """Whether `atomic_write` makes temporary files of this name for files of those names."""
    return any(re.fullmatch(rf"{re.escape(_begin(each))}\w{{8}}\.tmp", name) for each in names)


def _begin(name: str) -> str:
    """First part of a temporary file's name, which no file system finds too long."""
    return f"{MARK}{name[:40]}."


def _failed(path: str | os.PathLike[str], what: str, error: OSError) -> StorageError:
    advice = "Choose another place, or make this one a folder that you may write to."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "Free some space; files that were there are untouched."
    elif error.errno == errno.ENAMETOOLONG:
        advice = "Give a shorter name."
    return StorageError(f"{path} could not be {what}: {error.strerror or error}. {advice}")


def _write_beside(target: Path, content: bytes | str, waiting: dict[Path, str]) -> None:
    _make_folder(target.parent)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=_begin(target.name), suffix=".tmp")
    waiting[target] = name
    with os.fdopen(handle, "wb") as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
        stream.flush()
        os.fsync(stream.fileno())
    os.chmod(name, 0o666 & ~_umask())


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, each of them known on the disk to the one above."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
