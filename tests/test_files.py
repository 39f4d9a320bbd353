"""Writing: the old file or the new one, and an error that says so."""

import os

import pytest

from stiffnet.errors import StorageError
from stiffnet.files import atomic_write, atomic_write_all, check_writable


def test_what_was_written_can_be_read_and_nothing_else_is_left(tmp_path):
    target = atomic_write(tmp_path / "new" / "a.txt", "größe")
    assert target.read_text(encoding="utf-8") == "größe"
    assert os.listdir(target.parent) == ["a.txt"]
    atomic_write(target, b"second")
    assert target.read_bytes() == b"second"
    assert os.listdir(target.parent) == ["a.txt"]


def test_the_mode_is_that_of_an_ordinary_file(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("")
    assert atomic_write(tmp_path / "ours", "").stat().st_mode == plain.stat().st_mode


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_failure_at_any_point_keeps_the_old_file(tmp_path, monkeypatch, step):
    target = tmp_path / "a.txt"
    target.write_text("old")

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    if step == "write":
        monkeypatch.setattr("os.fdopen", full)
    else:
        monkeypatch.setattr(f"os.{step}", full)
    with pytest.raises(
        StorageError, match=r"a\.txt could not be written: No space left.*Free some"
    ):
        atomic_write(target, "new")
    monkeypatch.undo()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_the_file_reaches_the_disk_before_its_name_does(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, n=name, r=real: calls.append(n) or r(*a))
    atomic_write(tmp_path / "a", "x")
    assert calls == ["fsync", "replace", "fsync"]


def test_a_folder_in_the_way_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="could not be written"):
        atomic_write(tmp_path / "file" / "a", "x")


def test_of_several_files_all_are_written_or_none(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="Choose another place"):
        atomic_write_all({tmp_path / "a": "1", tmp_path / "file" / "b": "2"})
    assert os.listdir(tmp_path) == ["file"]
    assert [p.name for p in atomic_write_all({tmp_path / "a": "1", tmp_path / "b": "2"})] == [
        "a",
        "b",
    ]
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "file"]


def test_a_place_can_be_tried_without_a_trace(tmp_path):
    check_writable(tmp_path / "not" / "yet")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="file could not be written"):
        check_writable(tmp_path / "file")
    assert os.listdir(tmp_path) == ["file"]
