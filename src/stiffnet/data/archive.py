"""Unpacking the archive of a data set: everything that is in it, or nothing at all.

Python's ``data`` filter keeps every member inside the folder and drops its owner. Beyond that only
plain files and folders are unpacked, each name once, up to a limited size, and with the permissions
of any new file. All members are looked at before the first byte is written.
"""

import gzip
import os
import re
import tarfile
import tempfile
import unicodedata
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stiffnet.errors import CorruptFileError, StorageError, UnsafeFileError

CHUNK = 1 << 20
PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)
ODD = re.compile(r"^/|^[A-Za-z]:|\\|(^|/)\.\.(/|$)|[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
DAMAGED = (
    tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, ArithmeticError,
)  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """What an archive may come to."""

    members: int = 100_000
    size: int = 20 << 30  # bytes, unpacked
    ratio: int = 100  # times the size of the archive
    small: int = 10 << 20  # bytes, up to which no ratio is too large


def extract(
    archive: str | os.PathLike[str], folder: str | os.PathLike[str], *, limits: Limits | None = None
) -> Path:
    """Unpack a ``.tar`` or ``.tar.gz`` into a folder that appears when all is there.

    The file's content tells what it is, not its name. The folder must not be there yet, or be
    empty; it is also what is returned.

    Raises:
        UnsafeFileError: If a member would be written elsewhere, is not a plain file or folder, or
            has the name of another one, or if the archive would unpack to too much.
        CorruptFileError: If it is damaged, or not such an archive.
        StorageError: If it cannot be read, or the folder cannot be written.
    """
    source, target = Path(archive), Path(folder)
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise StorageError(f"{target} is there already. Choose another place, or delete it.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as place,
            tarfile.open(source, _mode(source), errorlevel=2) as opened,
        ):
            inside = Path(place, "content")
            inside.mkdir()
            for member in _checked(opened, source, limits or Limits()):
                plain = member.replace(mode=None, deep=False)  # type: ignore[arg-type]  # the umask's
                opened.extract(plain, inside, filter="data")
                if member.isfile():
                    with (inside / member.name).open("rb") as stream:
                        os.fsync(stream.fileno())
            os.replace(inside, target)
    except (UnsafeFileError, StorageError):
        raise
    except DAMAGED as error:
        reason = str(error).strip().rstrip(".") or type(error).__name__
        raise CorruptFileError(
            f"{source} is damaged, or not a tar or tar.gz archive: {reason}. Download it again."
        ) from error
    except OSError as error:
        raise StorageError(
            f"{source} could not be unpacked to {target}: {error.strerror or error}. Check the "
            "space and the permissions; nothing was left behind."
        ) from error
    return target


def _mode(source: Path) -> Literal["r:gz", "r:"]:
    with source.open("rb") as stream:
        return "r:gz" if stream.read(2) == b"\x1f\x8b" else "r:"


def _checked(archive: tarfile.TarFile, source: Path, limits: Limits) -> list[tarfile.TarInfo]:
    """Return all members, when none of them does any harm."""
    most = min(limits.size, max(limits.small, limits.ratio * source.stat().st_size))
    taken = {".": True}  # names in any spelling: whether they are files
    found, size = [], 0
    for member in _members(archive):
        found.append(member)
        size += member.size
        shown = repr(member.name[:255])
        name = unicodedata.normalize("NFC", os.path.normpath(member.name)).casefold()
        if len(found) > limits.members:
            objection = f"it has more than {limits.members:,} members"
        elif member.size < 0 or size > most:
            objection = f"it would unpack to more than {most:,} bytes"
        elif member.type not in PLAIN or member.issparse():
            objection = f"its member {shown} is a link, a device or otherwise not a file"
        elif ODD.search(member.name):
            objection = f"its member {shown} leaves the folder, or has an unusual name"
        elif name in taken and (taken[name] or member.isfile()):
            objection = f"its member {shown} has the name of another one, in some spelling"
        else:
            taken[name] = member.isfile()
            continue
        raise UnsafeFileError(
            f"{source} was not unpacked: {objection}. Get it from its makers instead."
        )
    if not found:
        raise tarfile.ReadError("it is empty")
    return found


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members to the end of the file, where tarfile would stop at a broken header."""
    yield from archive
    assert archive.fileobj is not None
    archive.fileobj.seek(archive.offset)
    rest = archive.fileobj.read(CHUNK)  # to the end, since only there gzip looks at its checksum
    if rest.strip(b"\0") or archive.fileobj.read(1):
        raise tarfile.ReadError("a header is broken")
