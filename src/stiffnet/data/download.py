"""Fetching a data set from its makers, when somebody asks: over https and checked, or not at all.

The SHA-256 of each archive was taken from several independent publications that agree, since the
makers give none (they, or torchvision for them, give an MD5). Of CIFAR-10, the unpacked files were
compared with an independent copy as well.
"""

import hashlib
import http.client
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stiffnet.data.archive import extract
from stiffnet.errors import CorruptFileError, DataError, StorageError
from stiffnet.files import MARK, check_writable
from stiffnet.registry import check_known

CHUNK = 1 << 20
SILENCE = 60  # seconds without a byte, after which the connection counts as dead
CIFAR = "https://www.cs.toronto.edu/~kriz"


@dataclass(frozen=True)
class Source:
    """Where an archive is, how it is known again, and what is in it."""

    url: str
    size: int
    sha256: str
    folder: str  # that it unpacks to
    files: Mapping[str, int]  # their sizes in bytes

    @property
    def file(self) -> str:
        """Name of the archive."""
        return self.url.rpartition("/")[2]


SOURCES = {
    "cifar10": Source(
        url=f"{CIFAR}/cifar-10-binary.tar.gz",
        size=170_052_171,
        sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        folder="cifar-10-batches-bin",
        files={
            **{f"data_batch_{number}.bin": 30_730_000 for number in range(1, 6)},
            "test_batch.bin": 30_730_000,
        },
    ),
    "cifar100": Source(
        url=f"{CIFAR}/cifar-100-binary.tar.gz",
        size=168_513_733,
        sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        folder="cifar-100-binary",
        files={"train.bin": 153_700_000, "test.bin": 30_740_000},
    ),
    "stl10": Source(
        url="https://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
        size=2_640_397_119,
        sha256="f31fd99273a1acb8609c8db427cebb1de3f71de77758cdc0e22956e1289b9866",
        folder="stl10_binary",
        files={
            "train_X.bin": 138_240_000,
            "train_y.bin": 5_000,
            "test_X.bin": 221_184_000,
            "test_y.bin": 8_000,
        },
    ),
}


Opener = Callable[[str, int], http.client.HTTPResponse]  # an address, and the first byte wanted


def download(
    name: str,
    folder: str | os.PathLike[str],
    *,
    on_bytes: Callable[[int], None] = lambda count: None,
    opener: Opener | None = None,
) -> Path:
    """Fetch a data set and unpack it, unless it is there; return the folder with its files.

    Whatever interrupts it, the unpacked folder is complete or absent, and the next call goes on
    with what had come. `on_bytes` is told how many more bytes of the archive are there, whenever
    some came; at first, those of an interrupted call too. `opener` opens addresses; the default
    knows https alone.

    Raises:
        UnknownNameError: If no such data set is fetched.
        DataError: If the connection fails.
        CorruptFileError: If something else came than the data set.
        StorageError: If it cannot be written.
    """
    check_known("data set to fetch", name, SOURCES)
    source = SOURCES[name]
    target = Path(folder) / source.folder
    if _complete(target, source):
        return target
    if target.exists():
        raise StorageError(
            f"{target} is there, but is not the whole of {name}. Delete it, and try again."
        )
    own = Path(folder) / source.file
    given = _is_archive(own, source)  # somebody's own, which is not ours to remove
    workplace = Path(folder) / f"{MARK}{source.folder}.unpacked"
    try:
        archive = own if given else _verified(name, folder, on_bytes, opener or https_only)
        shutil.rmtree(workplace, ignore_errors=True)  # that an interrupted call left
        unpacked = extract(archive, workplace) / source.folder
        if not _complete(unpacked, source):
            raise CorruptFileError(f"{archive} does not hold {name}. Delete it, and try again.")
        os.replace(unpacked, target)
        if not given:
            archive.unlink()
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"{target} could not be written: {error.strerror or error}. Free some space, or choose "
            "another place."
        ) from error
    finally:
        shutil.rmtree(workplace, ignore_errors=True)
    return target


def _verified(
    name: str, folder: str | os.PathLike[str], on_bytes: Callable[[int], None], opener: Opener
) -> Path:
    """Bring the archive to a file whose name is ours alone, and see that it is the one wanted."""
    source = SOURCES[name]
    check_writable(folder)
    part = Path(folder) / f"{MARK}{source.file}.part"
    part.parent.mkdir(parents=True, exist_ok=True)
    _receive(source, part, on_bytes, opener)
    found = _sha256(part)
    if part.stat().st_size != source.size or found != source.sha256:
        part.unlink()
        raise CorruptFileError(
            f"{source.url} gave another file than is known as {name}: its SHA-256 begins with "
            f"{found[:12]}, not {source.sha256[:12]}. It was deleted; try again later."
        )
    return part


def _is_archive(path: Path, source: Source) -> bool:
    return path.is_file() and path.stat().st_size == source.size and _sha256(path) == source.sha256


def https_only(url: str, start: int) -> http.client.HTTPResponse:
    """Open an https address from byte `start` on, and follow redirections to https alone."""
    _refuse_other(url)
    director = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
        _HttpsRedirects,
    ):
        director.add_handler(handler())
    headers = {"User-Agent": "stiffnet", **({"Range": f"bytes={start}-"} if start else {})}
    opened: http.client.HTTPResponse = director.open(
        urllib.request.Request(url, headers=headers),  # noqa: S310, https was seen to
        timeout=SILENCE,
    )
    return opened


class _HttpsRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        _refuse_other(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _refuse_other(url: str) -> None:
    if not url.startswith("https://"):
        raise DataError(
            f"{url} is not an https address, so it was not opened. Download it yourself."
        )


def _complete(folder: Path, source: Source) -> bool:
    """Tell if all files are there and have their sizes."""
    return all(
        (folder / name).is_file() and (folder / name).stat().st_size == size
        for name, size in source.files.items()
    )


def _receive(source: Source, part: Path, on_bytes: Callable[[int], None], opener: Opener) -> None:
    """Bring a file that has begun to come to its end."""
    part.touch()
    with part.open("r+b") as stream:
        present = stream.seek(0, os.SEEK_END)
        if present >= source.size:
            return
        told = 0
        for piece, place in _pieces(source, present, opener):
            if stream.tell() != place:  # the server begins anew
                stream.truncate(stream.seek(place))
            stream.write(piece)
            on_bytes(stream.tell() - told)
            told = stream.tell()
        if stream.tell() < source.size:
            raise DataError(
                f"{source.url} ended after {stream.tell():,} of {source.size:,} bytes. Try again; "
                "it continues where it stopped."
            )


def _pieces(source: Source, present: int, opener: Opener) -> Iterator[tuple[bytes, int]]:
    """Yield what comes, and where in the file it belongs."""
    try:
        with opener(source.url, present) as response:
            place = present if response.status == http.client.PARTIAL_CONTENT else 0
            while place <= source.size and (piece := response.read(CHUNK)):
                yield piece, place
                place += len(piece)
    except DataError:
        raise
    except (OSError, http.client.HTTPException) as error:
        reason = str(getattr(error, "reason", "") or error) or type(error).__name__
        raise DataError(
            f"{source.url} could not be fetched: {reason}. Check the connection and try again; "
            "it continues where it stopped."
        ) from error


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
