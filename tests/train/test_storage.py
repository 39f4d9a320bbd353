"""A disk that is full, read-only, taken by another run, or not a folder at all."""

import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest

from stiffnet.errors import StorageError
from stiffnet.network.model_folder import MANIFEST
from stiffnet.train.checkpoint import newest_whole
from stiffnet.train.run_folder import RunFolder
from train import faults
from train.faults import EVERYTHING, begin, finish, kept, left_over, outcome, until


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Return what an undisturbed run comes to."""
    out = tmp_path_factory.mktemp("calm") / "run"
    finish(EVERYTHING, out)
    return outcome(out)


@contextmanager
def disk(place, *options):
    """Mount a small disk of its own, which takes a privilege."""
    place.mkdir()
    mount = shutil.which("mount")
    asked = [mount or "mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(place)]
    if mount is None or subprocess.run(asked, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


PLACES = ("recipe.toml", "weights.safetensors", "optimizer.safetensors", "average.safetensors",
          "state.json", MANIFEST, "log.jsonl")  # fmt: skip
FAST = {
    ("fsync", "optimizer.safetensors", 3): (),
    ("replace", MANIFEST, 2): (),
    ("mkstemp", "log.jsonl", 2): (),
    ("fsync", "weights.safetensors", 5): (),  # of the final network
}
CASES = [
    pytest.param(*case, marks=FAST.get(case, pytest.mark.slow))
    for case in itertools.product(("mkstemp", "fsync", "replace"), PLACES, range(1, 6))
]


@pytest.mark.parametrize(("operation", "name", "nth"), CASES)
def test_whatever_cannot_be_written_ends_the_run_and_loses_nothing(
    tmp_path, expected, operation, name, nth
):
    out = tmp_path / "run"
    fault = partial(faults.at_file, name, nth, faults.full_disk, operation)
    life = begin(EVERYTHING, out, fault=fault)
    status = life.end()
    if status == 0:
        pytest.skip("no such file is written so often")
    assert status == 6
    assert "could not be written: No space left on device. Free some space" in life.said
    assert f"/{name} " in life.said
    assert "Traceback" not in life.said
    assert not list(out.rglob("*.tmp"))
    if life.drawn:
        where, problems = newest_whole(out / "checkpoints", RunFolder(out).owner)
        assert problems == []
        assert where.path.exists()
    if (out / "log.jsonl").exists():
        assert all(json.loads(line) for line in (out / "log.jsonl").read_text().splitlines())
    finish(EVERYTHING, out)
    assert outcome(out) == expected


def test_a_full_disk_ends_the_run_and_the_run_goes_on_when_there_is_space(tmp_path, expected):
    with disk(tmp_path / "small", "size=6m") as small:
        out = small / "run"
        life = begin(EVERYTHING, out, "--save-every", 1)
        assert life.end() == 6
        assert "No space left on device. Free some space" in life.said
        assert len(life.drawn) >= 1
        assert left_over(out) == []
        where, problems = newest_whole(out / "checkpoints", RunFolder(out).owner)
        assert (where.path.name, problems) == (kept(out)[-1], [])
        subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
        finish(EVERYTHING, out)
        assert outcome(out) == expected


def no_large_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))


def test_a_folder_that_cannot_hold_the_run_is_found_out_before_the_first_step(tmp_path):
    out = tmp_path / "run"
    life = begin(EVERYTHING, out, fault=no_large_files)
    assert life.end() == 6
    assert life.drawn == []
    assert "weights.safetensors could not be written: File too large." in life.said
    assert left_over(out) == []


def test_a_disk_that_is_read_only_is_found_out_before_the_first_step(tmp_path):
    with disk(tmp_path / "frozen", "ro") as frozen:
        life = begin(EVERYTHING, frozen / "run", home=tmp_path)
        assert life.end() == 6
        assert life.drawn == []
        assert f"{frozen}/run could not be written: Read-only file system." in life.said
        assert "Choose another place" in life.said


def test_a_folder_that_may_not_be_written_to_is_found_out_before_the_first_step(tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    if os.access(locked, os.W_OK):
        pytest.skip("permissions do not bind this user")
    life = begin(EVERYTHING, locked / "run", home=tmp_path)
    assert life.end() == 6
    assert life.drawn == []
    assert f"{locked}/run could not be written: Permission denied." in life.said


@pytest.mark.parametrize("below", ["", "run"])
def test_a_file_where_the_folder_should_be_is_left_alone(tmp_path, below):
    (tmp_path / "taken").write_text("mine")
    out = tmp_path / "taken" / below
    life = begin(EVERYTHING, out, home=tmp_path)
    assert life.end() == 6
    assert life.drawn == []
    assert f"stiffnet: {out} could not be written: Not a directory." in life.said
    assert (tmp_path / "taken").read_text() == "mine"


def test_other_threads_are_kept_out_as_other_processes_are(tmp_path):
    """A lock of the system is the process's, and goes when any thread closes its file."""
    locking = (
        "import sys; from pathlib import Path; from stiffnet.train.run_folder import RunFolder\n"
        "with RunFolder(Path(sys.argv[1])).locked(): pass"
    )

    def other_process():
        asked = [sys.executable, "-c", locking, str(tmp_path)]
        return subprocess.run(asked, capture_output=True, text=True).stderr

    def other_thread():
        with RunFolder(tmp_path / "run" / "..").locked():
            pass

    with RunFolder(tmp_path).locked(), ThreadPoolExecutor(1) as pool:
        with pytest.raises(StorageError, match=r"under way in .*, by another thread"):
            pool.submit(other_thread).result()
        assert f"by process {os.getpid()} on" in other_process()
    other_thread()
    assert other_process() == ""


def test_a_second_run_in_one_folder_is_refused_by_the_pid_of_the_first(tmp_path, expected):
    out, wait = tmp_path / "run", tmp_path / "go on"
    first = begin(EVERYTHING, out, "--save-every", 1, at={3: partial(faults.wait_for, wait)})
    until(lambda: len(first.drawn) == 3)
    before = kept(out)
    second = begin(EVERYTHING, out)
    assert "--resume" in second.argv
    assert second.end() == 6
    holder = f"process {first.process.pid} on "
    assert f"stiffnet: A run is under way in {out}, by {holder}" in second.said
    assert kept(out) == before
    wait.touch()
    assert first.end() == 0
    assert outcome(out) == expected


def test_a_killed_holder_leaves_no_lock(tmp_path, expected):
    out = tmp_path / "run"
    assert begin(EVERYTHING, out, "--save-every", 1, at={3: faults.die}).end() == -9
    assert "process" in (out / "run.lock").read_text()
    finish(EVERYTHING, out)
    assert outcome(out) == expected


def test_a_killed_holder_leaves_no_lock_with_its_workers_either(tmp_path):
    out, data = tmp_path / "run", faults.photographs(tmp_path / "photographs")
    recipe = replace(EVERYTHING, data=f"folder:{data}", epochs=1000)
    first = begin(recipe, out, "--workers", 2, pictures=False)
    until((out / "log.jsonl").exists)
    until(lambda: faults.children_of(first.process.pid))
    first.kill()
    second = begin(recipe, out, "--workers", 2, pictures=False)
    until(lambda: "Resuming" in second.said or not second.process.is_alive())
    second.send(signal.SIGTERM)
    assert second.end() == 143, second.said


def test_a_folder_that_holds_a_run_is_not_begun_anew_by_accident(tmp_path):
    out = tmp_path / "run"
    assert begin(EVERYTHING, out, at={1: faults.die}).end() == -9
    argv = [word for word in faults.command(EVERYTHING, out) if word != "--resume"]
    life = faults.Life(argv, tmp_path / "life")
    assert life.end() == 2
    assert f"stiffnet: {out} holds a run already. Add `--resume`" in life.said
    assert kept(out) == ["epoch-0000-step-000000000"]
