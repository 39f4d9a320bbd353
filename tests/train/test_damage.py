"""Damaged checkpoints: each is found out, the one before is used, and the run says so."""

import hashlib
import os
import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from stiffnet.errors import CheckpointError, CorruptFileError
from stiffnet.network.model_folder import MANIFEST
from stiffnet.train import loop
from stiffnet.train.checkpoint import (
    State,
    Tensors,
    checkpoints,
    newest_whole,
    read_checkpoint,
    write_checkpoint,
)
from stiffnet.train.run import run
from stiffnet.train.run_folder import RunFolder
from stiffnet.train.stopping import Stopped
from train import faults
from train.faults import ABOUT, EVERYTHING, begin, finish, kept, outcome, tell

NEWEST, PREVIOUS = "epoch-0001-step-000000005", "epoch-0001-step-000000004"


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory):
    """Return what an undisturbed run comes to, and the folder of one that died at its last step."""
    top = tmp_path_factory.mktemp("damage")
    finish(EVERYTHING, top / "calm")
    life = begin(EVERYTHING, top / "run", "--save-every", 1, at={6: faults.die})
    assert life.end() == -9
    assert kept(top / "run")[-2:] == [PREVIOUS, NEWEST]
    return outcome(top / "calm"), top / "run"


@pytest.fixture
def run_folder(broken_off, tmp_path):
    """Return a copy of the run that died, to be damaged."""
    return Path(shutil.copytree(broken_off[1], tmp_path / "run"))


def flip(file: Path, rng: random.Random) -> None:
    content = bytearray(file.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)


def cut(file: Path, rng: random.Random) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: rng.randrange(len(content))])


def damages(flips: int, cuts: int):
    kinds = [flip] * flips + [cut] * cuts
    marks = pytest.mark.slow if flips > 100 else ()
    return pytest.param(kinds, id=f"{flips} flips, {cuts} cuts", marks=marks)


@pytest.mark.parametrize("kinds", [damages(40, 20), damages(1_000, 200)])
def test_every_flipped_bit_and_every_cut_is_found_out(run_folder, kinds):
    rng, count = random.Random(len(kinds)), Counter()
    folder, run = run_folder / "checkpoints", RunFolder(run_folder).owner
    newest = folder / NEWEST
    files = sorted(newest.iterdir())
    assert len(files) == 7
    for number, damage in enumerate(kinds):
        file = files[number % len(files)]
        before = file.read_bytes()
        damage(file, rng)
        with pytest.raises(CheckpointError) as found:
            read_checkpoint(newest)
        assert type(found.value) is CorruptFileError
        assert str(file) in str(found.value)
        where, problems = newest_whole(folder, run)
        assert where.path == folder / PREVIOUS
        assert problems == [str(found.value)]
        aside = folder / f"damaged-{NEWEST}"
        (aside / file.name).write_bytes(before)
        aside.rename(newest)
        count[f"{damage.__name__}s found"] += 1
    read_checkpoint(newest)
    tell(count)


@pytest.mark.parametrize(
    ("name", "damage"),
    [("optimizer.safetensors", flip), (MANIFEST, flip), ("average.safetensors", cut)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_the_run_goes_on_from_the_checkpoint_before_and_says_so(
    broken_off, run_folder, name, damage
):
    damage(run_folder / "checkpoints" / NEWEST / name, random.Random(1))
    life = finish(EVERYTHING, run_folder)
    assert f"{NEWEST}/{name}" in life.said
    assert "An older checkpoint is used." in life.said
    assert f"Resuming from {run_folder}/checkpoints/{PREVIOUS}" in life.said
    assert life.first_step == 4
    assert outcome(run_folder) == broken_off[0]


def test_the_same_checkpoint_may_be_damaged_twice(broken_off, run_folder):
    for _ in range(2):
        flip(run_folder / "checkpoints" / NEWEST / "state.json", random.Random(1))
        life = begin(EVERYTHING, run_folder, "--save-every", 1, at={2: faults.die})
        assert life.end() == -9, life.said
        assert kept(run_folder)[-1] == NEWEST
    finish(EVERYTHING, run_folder)
    assert outcome(run_folder) == broken_off[0]


def test_where_all_are_damaged_one_error_lists_them_and_nothing_begins_anew(run_folder):
    folders = [run_folder / "checkpoints" / name for name in kept(run_folder)]
    for folder in folders:
        flip(folder / "weights.safetensors", random.Random(1))
    life = begin(EVERYTHING, run_folder)
    assert life.end() == 5
    assert life.drawn == []
    assert life.said.startswith("stiffnet: No checkpoint in ")
    assert all(f"{folder}/weights.safetensors is not" in life.said for folder in folders)
    assert "start over in another folder" in life.said
    assert [run_folder / "checkpoints" / name for name in kept(run_folder)] == folders


def test_a_damaged_best_checkpoint_costs_the_best_network_and_not_the_last(broken_off, run_folder):
    expected, _ = broken_off
    best = f"epoch-0001-step-{3:09d}"
    assert best in kept(run_folder)
    flip(run_folder / "checkpoints" / best / "weights.safetensors", random.Random(1))
    begin(EVERYTHING, run_folder).end()
    assert faults.digest(run_folder / "final" / "weights.safetensors") == expected["final"]


@pytest.mark.parametrize("part", ["weights.safetensors", "optimizer.safetensors", "state.json"])
def test_a_missing_part_is_damage(run_folder, part):
    (run_folder / "checkpoints" / NEWEST / part).unlink()
    where, problems = newest_whole(run_folder / "checkpoints", RunFolder(run_folder).owner)
    assert where.path == run_folder / "checkpoints" / PREVIOUS
    assert len(problems) == 1
    assert f"{NEWEST}/{part} is missing" in problems[0]


def test_what_has_no_manifest_was_never_a_checkpoint_and_is_swept(run_folder):
    folder = run_folder / "checkpoints"
    (folder / NEWEST / MANIFEST).unlink()
    (folder / "epoch-0009-step-000000099").mkdir()
    (folder / NEWEST / ".stiffnet.state.json.a1b2c3d4.tmp").write_text("half")
    (run_folder / ".stiffnet.log.jsonl.a1b2c3d4.tmp").write_text("half")
    run = RunFolder(run_folder)
    run.sweep(run.owner)
    assert faults.left_over(run_folder) == []
    found, problems = newest_whole(folder, run.owner)
    assert (found.path, problems) == (folder / PREVIOUS, [])


def test_without_a_checkpoint_a_run_begins_at_step_0_and_says_so(broken_off, run_folder):
    shutil.rmtree(run_folder / "checkpoints")
    life = finish(EVERYTHING, run_folder)
    assert "has no checkpoint yet, so it begins at step 0" in life.said
    assert outcome(run_folder) == broken_off[0]


def put(folder: Path, epoch: int, step: int, best: int = 0) -> Path:
    """Write a small checkpoint after `epoch` whole epochs of ten steps."""
    rows = [{"epoch": n + 1, "step": 10 * n + 10, "test_top1": 0.5} for n in range(epoch)]
    state = State(step=step, history=rows)
    state.best = {"epoch": best, "step": 10 * best, "test_top1": 0.5} if best else {}
    return write_checkpoint(folder, ABOUT, Tensors({"w": torch.ones(1)}, {}, {}), state)


def test_checkpoints_are_ordered_by_number_and_not_by_name(tmp_path):
    for epoch in (9, 10, 99_999, 100_000):
        newest = put(tmp_path, epoch, 10 * epoch)
        assert checkpoints(tmp_path)[0] == newest
        found, problems = newest_whole(tmp_path)
        assert (found.path, problems) == (newest, [])


def test_within_an_epoch_and_after_its_test_come_in_this_order(tmp_path):
    before, after = put(tmp_path, 0, 10), put(tmp_path, 1, 10)
    assert checkpoints(tmp_path) == [after, before]


def names(folder: Path) -> list[tuple[int, int]]:
    return [(int(path.name[6:10]), int(path.name[-9:])) for path in checkpoints(folder)]


def test_the_newest_the_one_before_and_the_best_are_kept(tmp_path):
    for epoch in range(1, 6):
        put(tmp_path, epoch, 10 * epoch, best=min(epoch, 2))
    assert names(tmp_path) == [(5, 50), (4, 40), (2, 20)]
    put(tmp_path, 5, 55, best=2)
    assert names(tmp_path) == [(5, 55), (5, 50), (2, 20)]
    put(tmp_path, 6, 60, best=6)
    assert names(tmp_path) == [(6, 60), (5, 55)]


def test_what_a_kill_between_writing_and_removing_left_goes_with_the_next_checkpoint(
    tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr("stiffnet.train.checkpoint.prune", lambda *args: None)
        for epoch in range(1, 6):
            put(tmp_path, epoch, 10 * epoch, best=1)
    assert len(names(tmp_path)) == 5
    assert newest_whole(tmp_path)[0].path.name == "epoch-0005-step-000000050"
    put(tmp_path, 6, 60, best=1)
    assert names(tmp_path) == [(6, 60), (5, 50), (1, 10)]


def test_nothing_that_is_being_removed_looks_whole(tmp_path, monkeypatch):
    for epoch in range(1, 4):
        put(tmp_path, epoch, 10 * epoch)
    real, seen = os.unlink, []

    def unlink(path, *args, **kwargs):
        seen.append((Path(path).name, (Path(path).parent / MANIFEST).exists()))
        real(path, *args, **kwargs)

    monkeypatch.setattr("os.unlink", unlink)
    put(tmp_path, 4, 40)
    gone = [(name, whole) for name, whole in seen if not name.endswith(".tmp")]
    assert gone[0] == (MANIFEST, True)
    assert gone[-1] == ("run.json", False)
    assert not any(whole for _, whole in gone[1:])


def test_resuming_reads_and_sums_each_part_of_the_checkpoint_once(tmp_path, monkeypatch):
    recipe = replace(EVERYTHING, data="generated:40", epochs=1)
    with pytest.raises(Stopped):
        run(recipe, tmp_path / "run", audience=faults.Stopper(2))
    opened, summed = Counter(), Counter()
    newest = checkpoints(tmp_path / "run/checkpoints", RunFolder(tmp_path / "run").owner)[0]
    parts = {file.read_bytes(): file.name for file in newest.iterdir() if file.name != MANIFEST}
    open_path, sha256 = Path.open, hashlib.sha256

    def counted(path, *given, **options):
        if path.parent == newest:
            opened[path.name] += 1
        return open_path(path, *given, **options)

    def digested(data=b"", **options):
        if data in parts:
            summed[parts[data]] += 1
        return sha256(data, **options)

    def streamed(stream, name):
        summed[Path(stream.name).name] += 1
        return sha256(stream.read())

    monkeypatch.setattr(Path, "open", counted)
    monkeypatch.setattr(hashlib, "sha256", digested)
    monkeypatch.setattr(hashlib, "file_digest", streamed)
    monkeypatch.setattr(loop, "epoch_batches", lambda *given, **options: 1 / 0)  # the end of it
    with pytest.raises(ZeroDivisionError):
        run(recipe, tmp_path / "run", resume=True)
    assert summed == dict.fromkeys(parts.values(), 1)
    assert {name: opened[name] for name in parts.values() if name.endswith("tensors")} == {
        "weights.safetensors": 1, "optimizer.safetensors": 1, "average.safetensors": 1,
    }  # fmt: skip
    assert opened["state.json"] == 1


def test_a_checkpoint_whose_owner_is_damaged_is_not_taken_for_another_run_s(run_folder):
    folder, run = run_folder / "checkpoints", RunFolder(run_folder).owner
    file = folder / NEWEST / "run.json"
    other = run[:-1] + ("0" if run[-1] != "0" else "1")
    file.write_text(file.read_text().replace(run, other))
    where, problems = newest_whole(folder, run)
    assert where.path == folder / PREVIOUS
    [problem] = problems
    assert f"{file} is not as it was written" in problem
