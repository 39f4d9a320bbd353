"""Unpacking an archive that a stranger made: everything that is in it, or nothing at all.

A member is a plain file or a folder, under a name that stays inside, and that no other member has
on any file system. Every name is looked at before the first byte is written. Owners, permissions
and times in the archive are not taken over.
"""

import gzip
import io
import os
import re
import stat
import struct
import tarfile
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, cast

from stiffnet.errors import CorruptFileError, StiffnetError, StorageError, UnsafeFileError

CHUNK = 1 << 20
LONGEST = 255  # bytes in the name of a file, on most file systems
DAMAGED = (
    tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, struct.error, EOFError,
    ValueError, RuntimeError, ArithmeticError, LookupError,
)  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """What an archive may come to."""

    members: int = 100_000
    size: int = 20 << 30  # bytes, unpacked
    ratio: int = 100  # times the size of the archive
    small: int = 10 << 20  # bytes, up to which no ratio is too large


@dataclass(frozen=True)
class Member:
    """One entry of an archive."""

    name: str
    size: int
    kind: str  # "file" or "folder", or what is wrong with it
    open: Callable[[], IO[bytes]]


def extract(
    archive: str | os.PathLike[str], folder: str | os.PathLike[str], *, limits: Limits | None = None
) -> Path:
    """Unpack a ``.tar``, ``.tar.gz`` or ``.zip`` into a folder that appears when all is there.

    Args:
        archive: The file; its content tells what it is, not its name.
        folder: Where to; not there yet, or empty.
        limits: On the number of members and their size.

    Returns:
        The folder.

    Raises:
        UnsafeFileError: If a member would be written elsewhere, is no plain file or folder, or has
            another's name, or if the archive would unpack to too much.
        CorruptFileError: If it is damaged, or no such archive.
        StorageError: If it cannot be read, or the folder cannot be written.
    """
    source, target = Path(archive), Path(folder)
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise StorageError(f"{target} is there already. Choose another place, or take it away.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as place,
            ExitStack() as stack,
        ):
            inside = Path(place, "content")
            inside.mkdir()
            for member in _checked(source, limits or Limits(), stack):
                _write(source, member, inside.joinpath(*_parts(member.name)))
            os.replace(inside, target)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"{source} could not be unpacked to {target}: {error.strerror or error}. Check the "
            "space and the permissions; nothing was left behind."
        ) from error
    return target


def _checked(source: Path, limits: Limits, stack: ExitStack) -> list[Member]:
    """Return all members, when none of them does any harm."""
    gate = _Gate(limits, source.stat().st_size)
    found = []
    try:
        for member in _members(source, stack):
            objection = gate.objection(member)
            if objection:
                raise UnsafeFileError(
                    f"{source} was not unpacked: {objection}. Get it from its makers instead."
                )
            found.append(member)
    except StiffnetError:
        raise
    except DAMAGED as error:
        raise _damaged(source, error) from error
    if not found:
        raise CorruptFileError(f"{source} is an empty archive. Fetch it again.")
    return found


class _Gate:
    """Looks at one member after the other, and remembers what it has let pass."""

    def __init__(self, limits: Limits, packed: int) -> None:
        self._limits = limits
        self._most = min(limits.size, max(limits.small, limits.ratio * packed))
        self._members = 0
        self._size = 0
        self._taken: dict[str, tuple[str, bool]] = {}  # in any spelling: ours, and if it is a file

    def objection(self, member: Member) -> str:
        """Return why a member must not be unpacked, or nothing."""
        self._members += 1
        self._size += member.size
        if self._members > self._limits.members:
            return f"it has more than {self._limits.members:,} members"
        if member.size < 0 or self._size > self._most:
            return f"it would unpack to more than {self._most:,} bytes"
        name = repr(member.name[:LONGEST])
        fault = _fault(member.name)
        if member.kind not in ("file", "folder"):
            return f"its member {name} is {member.kind}"
        if fault or (member.kind == "file" and not _parts(member.name)):
            return f"its member {name} {fault or 'has no name'}"
        if not self._take(_parts(member.name), member.kind == "file"):
            return f"its member {name} has the name of another one, in some spelling"
        return ""

    def _take(self, parts: list[str], is_file: bool) -> bool:
        """Note a member's name and its folders'; tell if each is free, or the same folder's."""
        for depth in range(1, len(parts) + 1):
            spelled = "/".join(parts[:depth])
            entry = (spelled, is_file and depth == len(parts))
            before = self._taken.setdefault(_any_spelling(spelled), entry)
            if before is not entry and (entry[1] or before != entry):
                return False
        return True


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]


def _any_spelling(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _fault(name: str) -> str:
    """Return what is wrong with a name, if anything is."""
    if name.startswith("/") or "\\" in name or re.match("[A-Za-z]:", name):
        return "has an absolute name, or one of another system"
    parts = name.split("/")
    if ".." in parts:
        return "leaves the folder"
    try:
        longest = max(len(part.encode()) for part in parts)
    except UnicodeEncodeError:
        return "has a name that is not UTF-8"
    if longest > LONGEST or any(unicodedata.category(char) == "Cc" for char in name):
        return "has a name that is too long, or has control characters"
    return ""


def _members(source: Path, stack: ExitStack) -> Iterator[Member]:
    stream: IO[bytes] = stack.enter_context(source.open("rb"))
    start = stream.read(4)
    stream.seek(0)
    if start in (b"PK\x03\x04", b"PK\x05\x06"):
        return _zip_members(stack.enter_context(zipfile.ZipFile(stream)))
    if start.startswith(b"\x1f\x8b"):
        stream = cast(IO[bytes], stack.enter_context(gzip.GzipFile(fileobj=stream)))
    return _tar_members(stream)


def _zip_members(archive: zipfile.ZipFile) -> Iterator[Member]:
    for info in archive.infolist():
        mode = stat.S_IFMT(info.external_attr >> 16)
        kind = "folder" if info.orig_filename.endswith("/") else "file"
        if mode not in (0, stat.S_IFREG, stat.S_IFDIR):
            kind = "a link or a device"
        elif info.flag_bits & 1:
            kind = "encrypted"
        elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            kind = "packed by an unusual method"
        yield Member(info.orig_filename, info.file_size, kind, partial(archive.open, info))


def _tar_members(stream: IO[bytes]) -> Iterator[Member]:
    careful = cast(IO[bytes], _Careful(stream))
    archive = tarfile.open(fileobj=careful, mode="r:")  # noqa: SIM115, it owns nothing
    for info in archive:
        kind = "a link, a device or a pipe"
        if info.isdir():
            kind = "folder"
        elif info.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not info.issparse():
            kind = "file"

        def content(info: tarfile.TarInfo = info) -> IO[bytes]:
            opened = archive.extractfile(info)
            assert opened is not None
            return opened

        yield Member(info.name, info.size if kind == "file" else 0, kind, content)
    careful.seek(archive.offset)
    rest = careful.read(CHUNK)  # to the end, since only there gzip looks at its checksum
    if rest.strip(b"\0") or careful.read(1):
        raise tarfile.ReadError("a header is broken")  # where tarfile would just stop


class _Careful(io.RawIOBase):
    """Reads little at a time, since a header may ask for more than there is memory."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def read(self, size: int = -1, /) -> bytes:
        if not 0 <= size <= CHUNK:
            raise tarfile.ReadError(f"a header asks for {size} bytes at once")
        return self._stream.read(size)

    def seek(self, place: int, whence: int = 0, /) -> int:
        if place < 0:
            raise tarfile.ReadError("a header leads to before the beginning")
        return self._stream.seek(place, whence)

    def tell(self) -> int:
        return self._stream.tell()


def _write(source: Path, member: Member, path: Path) -> None:
    if member.kind == "folder":
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with path.open("xb") as stream:
        for piece in _pieces(source, member):
            written += stream.write(piece)
        stream.flush()
        os.fsync(stream.fileno())
    if written != member.size:
        raise _damaged(source, EOFError(f"{member.name} is cut short"))


def _pieces(source: Path, member: Member) -> Iterator[bytes]:
    try:
        with member.open() as content:
            while piece := content.read(CHUNK):
                yield piece
    except DAMAGED as error:
        raise _damaged(source, error) from error


def _damaged(source: Path, error: BaseException) -> CorruptFileError:
    reason = str(error).strip().rstrip(".") or type(error).__name__
    return CorruptFileError(
        f"{source} is damaged, or no tar, tar.gz or zip archive: {reason}. Fetch it again."
    )
