"""Laws of unpacking: all of a good archive, nothing of a hostile one, nothing outside ever."""

import gzip
import io
import os
import shutil
import stat
import struct
import tarfile

import numpy as np
import pytest

from stiffnet.data.archive import Limits, extract
from stiffnet.errors import CorruptFileError, StiffnetError, StorageError, UnsafeFileError

CONTENT = {"top/a.bin": b"some bytes" * 1000, "top/deep/b.txt": b"", "c": bytes(3000)}


def entry(name, kind=tarfile.REGTYPE, content=b"evil", **fields):
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = len(content) if kind == tarfile.REGTYPE else 0
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def tar(*entries, mode="w", **options):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode, **options) as archive:
        for info, content in entries:
            archive.addfile(info, io.BytesIO(content) if info.type == tarfile.REGTYPE else None)
    return stream.getvalue()


def good(form):
    entries = [entry("top", tarfile.DIRTYPE)] + [
        entry(name, content=content) for name, content in CONTENT.items()
    ]
    return {
        "tar": lambda: tar(*entries),
        "gnu tar": lambda: tar(*entries, format=tarfile.GNU_FORMAT),
        "tar.gz": lambda: tar(*entries, mode="w:gz"),
    }[form]()


FORMS = ["tar", "gnu tar", "tar.gz"]


@pytest.fixture
def place(tmp_path):
    """An archive's place in a folder of its own, so that what appears beside it is seen."""
    (tmp_path / "room").mkdir()
    return tmp_path / "room" / "archive"


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def everything(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


@pytest.mark.parametrize("form", FORMS)
def test_a_good_archive_is_unpacked_whole(place, form):
    place.write_bytes(good(form))
    target = extract(place, place.parent / "new" / "out")
    files = {
        str(path.relative_to(target)): path.read_bytes()
        for path in target.rglob("*")
        if path.is_file()
    }
    assert files == CONTENT
    assert everything(place.parent / "new") == sorted(
        ["out", "out/c", "out/top", "out/top/a.bin", "out/top/deep", "out/top/deep/b.txt"]
    )


def test_an_empty_folder_is_filled_and_another_is_left_alone(place):
    place.write_bytes(good("tar"))
    target = place.parent / "out"
    target.mkdir()
    extract(place, target)
    with pytest.raises(StorageError, match="out is there already"):
        extract(place, target)
    (place.parent / "file").write_text("mine")
    with pytest.raises(StorageError, match="file is there already"):
        extract(place, place.parent / "file")
    assert (place.parent / "file").read_text() == "mine"


def test_permissions_and_owners_are_not_taken_over(place):
    place.write_bytes(tar(entry("tool", mode=0o4777, uid=12345, gid=12345)))
    found = (extract(place, place.parent / "out") / "tool").stat()
    assert stat.S_IMODE(found.st_mode) & 0o6111 == 0
    assert found.st_uid == os.getuid()


HOSTILE_TARS = {
    "above": [entry("../escaped")],
    "above, in the middle": [entry("top/../../escaped")],
    "above, a folder": [entry("..", tarfile.DIRTYPE)],
    "absolute": [entry("/tmp/stiffnet-escaped")],
    "drive": [entry("C:/escaped")],
    "drive and backslash": [entry("C:\\escaped")],
    "backslash": [entry("..\\escaped")],
    "link": [entry("x", tarfile.SYMTYPE, linkname="../..")],
    "link, then a file through it": [
        entry("x", tarfile.SYMTYPE, linkname=".."),
        entry("x/escaped"),
    ],
    "chain of links": [
        entry("a", tarfile.SYMTYPE, linkname="."),
        entry("a/b", tarfile.SYMTYPE, linkname=".."),
        entry("a/b/escaped"),
    ],
    "hard link": [entry("x", tarfile.LNKTYPE, linkname="/etc/passwd")],
    "pipe": [entry("x", tarfile.FIFOTYPE)],
    "character device": [entry("x", tarfile.CHRTYPE, devmajor=1, devminor=3)],
    "block device": [entry("x", tarfile.BLKTYPE)],
    "contiguous file": [entry("x", tarfile.CONTTYPE)],
    "unknown type": [entry("x", b"Z")],
    "twice": [entry("x"), entry("x", content=b"other")],
    "twice, by detours": [entry("top/x"), entry("./top//x")],
    "case": [entry("File"), entry("file")],
    "sharp s": [entry("strasse"), entry("straße")],
    "accents": [entry("caf\u00e9"), entry("cafe\u0301")],
    "file, then folder": [entry("x"), entry("x", tarfile.DIRTYPE)],
    "folder, then file": [entry("x", tarfile.DIRTYPE), entry("x")],
    "no name": [entry("./")],
    "line break": [entry("x\ny")],
    "escape": [entry("x\x1b[2Jy")],
    "not UTF-8": [entry("x\udcff")],
    "good ones, then a bad one": [entry("a"), entry("b"), entry("../escaped")],
}


def hostile():
    for name, entries in HOSTILE_TARS.items():
        yield pytest.param(tar(*entries), id=f"tar: {name}")
        yield pytest.param(tar(*entries, mode="w:gz"), id=f"tar.gz: {name}")


@pytest.mark.parametrize("content", list(hostile()))
def test_a_hostile_archive_leaves_nothing_anywhere(place, content):
    place.write_bytes(content)
    before = everything(place.parent.parent)
    with pytest.raises(UnsafeFileError, match=r"was not unpacked: .* from its makers") as error:
        extract(place, place.parent / "out")
    assert "\n" not in str(error.value)
    assert "\x1b" not in str(error.value)
    assert everything(place.parent.parent) == before
    assert not os.path.lexists("/tmp/stiffnet-escaped")


def many():
    return [f"{number}" for number in range(1001)]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: tar(*(entry(name, content=b"") for name in many())), "than 1,000 members"),
        (lambda: tar(entry("x", content=bytes(20 << 20)), mode="w:gz"), "than 10,485,760 bytes"),
    ],
    ids=["many", "bomb"],
)
def test_an_archive_that_would_come_to_too_much_is_refused(place, make, match):
    place.write_bytes(make())
    with pytest.raises(UnsafeFileError, match=match):
        extract(place, place.parent / "out", limits=Limits(members=1000))
    assert everything(place.parent) == ["archive"]


def test_a_large_archive_of_large_files_is_no_bomb(place):
    content = bytes(Limits().small) + b"and more"
    place.write_bytes(tar(entry("x", content=content)))
    assert (extract(place, place.parent / "out") / "x").read_bytes() == content


def test_the_total_counts_and_not_each_member(place):
    place.write_bytes(tar(*(entry(f"{k}", content=bytes(1 << 20)) for k in range(3))))
    with pytest.raises(UnsafeFileError, match="more than 2,097,152 bytes"):
        extract(place, place.parent / "out", limits=Limits(size=2 << 20))


def test_a_header_cannot_ask_for_all_the_memory(place):
    """An extended header that says it has gigabytes of names, and one of negative size."""
    for size in (b"10000000000\0", bytes([255] * 4) + struct.pack(">q", -512)):
        block = bytearray(tar(entry("name", content=b""))[:512])
        block[156:157] = tarfile.XHDTYPE
        block[124:136] = size
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
        place.write_bytes(gzip.compress(bytes(block) + bytes(1 << 20)))
        with pytest.raises(CorruptFileError, match="is damaged, or not a tar"):
            extract(place, place.parent / "out")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "damaged, or not a tar or tar.gz archive"),
        (b"hello", "damaged, or not a tar"),
        (b"<html>not found</html>" * 100, "damaged, or not a tar"),
        (b"\x1f\x8b" + b"x" * 100, "damaged, or not a tar"),
        (gzip.compress(b"not a tar", mtime=0), "damaged, or not a tar"),
        (b"PK\x03\x04" + b"x" * 1000, "damaged, or not a tar"),
        (tar(), "it is empty"),
    ],
    ids=["nothing", "text", "a page", "a torn gzip", "no tar", "a zip", "a tar"],
)
def test_what_is_no_archive_is_told_so(place, content, match):
    place.write_bytes(content)
    with pytest.raises(CorruptFileError, match=match):
        extract(place, place.parent / "out")
    assert everything(place.parent) == ["archive"]


@pytest.mark.parametrize(
    "entries",
    [[entry("x"), entry("x/y")], [entry("x/y"), entry("x")], [entry("a" * 256)]],
    ids=["a file, then in it", "in it, then a file", "too long a name"],
)
def test_what_the_file_system_refuses_leaves_nothing(place, entries):
    place.write_bytes(tar(*entries))
    with pytest.raises(StorageError, match=r"could not be unpacked to .* nothing was left behind"):
        extract(place, place.parent / "out")
    assert everything(place.parent) == ["archive"]


def test_a_missing_archive_is_told_so(place):
    with pytest.raises(StorageError, match=r"archive could not be unpacked .* No such file"):
        extract(place, place.parent / "out")


@pytest.mark.parametrize("form", FORMS)
def test_a_cut_archive_gives_all_or_nothing(place, form):
    whole, target = good(form), place.parent / "out"
    last = len(whole) - (10240 if form in ("tar", "gnu tar") else 1)  # they end in zeros
    for length in np.linspace(0, last, 20).astype(int):
        place.write_bytes(whole[:length])
        with pytest.raises(CorruptFileError):
            extract(place, target)
        assert everything(place.parent) == ["archive"]


@pytest.mark.parametrize("form", FORMS)
def test_a_damaged_archive_gives_one_error_or_files_that_are_whole(place, form):
    """One bit changed at a time, mostly in headers; a plain tar has no sums over its content."""
    whole, rng, found = bytearray(good(form)), np.random.default_rng(0), 0
    known = {*CONTENT.values()}
    for where in rng.integers(0, min(len(whole), 2048), 25).tolist():
        changed = whole.copy()
        changed[where] ^= 1 << int(rng.integers(8))
        place.write_bytes(changed)
        try:
            target = extract(place, place.parent / "out")
        except StiffnetError:
            found += 1
            assert everything(place.parent) == ["archive"]
            continue
        if form not in ("tar", "gnu tar"):
            assert {file.read_bytes() for file in target.rglob("*") if file.is_file()} <= known
        shutil.rmtree(target)
    assert found
