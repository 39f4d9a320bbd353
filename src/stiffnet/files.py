"""Writing files so that a crash leaves the old one or the new one, never half of one."""

import contextlib
import os
import tempfile
from pathlib import Path

from stiffnet.errors import StorageError


def atomic_write(path: str | os.PathLike[str], content: bytes | str) -> Path:
    """Write `content` to `path`, making its folder if it is not there.

    The content goes to a temporary file in the same folder, is flushed to the disk and renamed;
    then the folder is flushed too. Until the rename the old file is untouched.

    Raises:
        StorageError: If anything on the way fails; the temporary file is gone then.
    """
    target = Path(path)
    data = content.encode() if isinstance(content, str) else content
    temporary: str | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(
            dir=target.parent, prefix=f".{target.name}.", suffix=".tmp"
        )
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
        temporary = None
        _sync_folder(target.parent)
    except OSError as error:
        raise StorageError(
            f"{target} could not be written: {error.strerror or error}. "
            "Free some space or choose another folder; the file that was there is untouched."
        ) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
    return target


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
