"""``kill -9`` at any moment: what was kept is whole, and the run ends as if nothing had been."""

import os
import random
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from stiffnet.network.create import create_model
from stiffnet.network.model_folder import MANIFEST
from stiffnet.train.checkpoint import (
    State,
    Tensors,
    checkpoints,
    newest_whole,
    sweep,
    write_checkpoint,
)
from stiffnet.train.identity import RUN
from train import faults
from train.faults import (
    ABOUT,
    EVERYTHING,
    SAMPLES,
    SERVER,
    STEPS,
    begin,
    finish,
    left_over,
    outcome,
    tell,
)

RECIPES = {
    "sgd": EVERYTHING,
    "adamw": replace(
        EVERYTHING,
        optimizer="adamw",
        nesterov=False,
        momentum=0.9,
        learning_rate=0.002,
        channels_last=True,
        noise="constant",
        seed=5,
    ),
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return what a run comes to, which batches it draws, and how long it takes."""
    known = {}

    def look_up(name: str):
        if name not in known:
            faults.warm_up()
            out = tmp_path_factory.mktemp("undisturbed") / name
            began = time.monotonic()
            life = finish(RECIPES[name], out, "--save-every", 1)
            known[name] = (outcome(out), life.drawn, time.monotonic() - began)
        return known[name]

    return look_up


def kept_stream(lives):
    """Return the batches that count: those of each life up to where the next one began."""
    lived = [life for life in lives if life.drawn]
    spans = [after.first_step - before.first_step for before, after in pairwise(lived)]
    assert all(0 <= span <= len(life.drawn) for life, span in zip(lived, spans, strict=False))
    return [
        batch
        for life, span in zip(lived, [*spans, None], strict=True)
        for batch in life.drawn[:span]
    ]


def test_the_undisturbed_run_draws_every_sample_once_in_each_epoch(undisturbed):
    stream = undisturbed("sgd")[1]
    assert [epoch for epoch, _ in stream] == [0] * STEPS + [1] * STEPS
    orders = [
        [sample for number, batch in stream if number == e for sample in batch] for e in (0, 1)
    ]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(SAMPLES))
    assert orders[0] != orders[1]


TRIALS = [
    pytest.param(8, id="8 times"),
    pytest.param(100, id="100 times", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("trials", TRIALS)
def test_a_run_that_is_killed_anywhere_ends_with_the_same_bits(tmp_path, undisturbed, trials):
    rng, count = random.Random(trials), Counter(trials=trials)
    for trial in range(trials):
        name = "adamw" if trial % 4 == 3 else "sgd"
        recipe, out = RECIPES[name], tmp_path / str(trial)
        expected, stream, duration = undisturbed(name)
        lives, again = [], True
        while again:
            life = begin(recipe, out, "--save-every", 1)
            time.sleep(rng.uniform(0, duration))
            life.kill()
            lives.append(life)
            count["kills"] += life.process.exitcode == -9
            count["of them during a save"] += bool(left_over(out))
            count["before the first step"] += not life.drawn
            again = rng.random() < 0.5
        lives.append(finish(recipe, out, "--save-every", 1))
        for life in lives:
            assert life.drawn == stream[life.first_step :][: len(life.drawn)]
        assert kept_stream(lives) == stream
        assert outcome(out) == expected
        count["equal to the undisturbed run"] += 1
    tell(count)


@pytest.mark.parametrize("name", ["recipe.toml", "log.jsonl"])
def test_a_kill_at_a_file_that_is_written_last_or_first_is_survived(tmp_path, undisturbed, name):
    out, last = tmp_path / "run", 1 if name == "recipe.toml" else 2
    fault = partial(faults.at_file, name, last, faults.die)
    assert begin(EVERYTHING, out, fault=fault).end() == -9
    assert left_over(out) != []
    finish(EVERYTHING, out)
    assert outcome(out) == undisturbed("sgd")[0]


@pytest.mark.parametrize(
    "stride", [pytest.param(23, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)]
)
def test_a_kill_before_any_call_that_changes_the_disk_is_survived(tmp_path, undisturbed, stride):
    expected, stream, _ = undisturbed("sgd")
    log = tmp_path / "calls"
    finish(EVERYTHING, tmp_path / "calm", fault=partial(faults.at_disk_call, 0, faults.die, log))
    calls = log.read_text().splitlines()
    chosen = range(1, len(calls) + 1, stride)
    for number in chosen:
        out = tmp_path / str(number)
        fault = partial(faults.at_disk_call, number, faults.die, tmp_path / f"{number}-calls")
        life = begin(EVERYTHING, out, fault=fault)
        assert life.end() == -9
        assert kept_stream([life, finish(EVERYTHING, out)]) == stream, calls[number - 1]
        assert outcome(out) == expected, calls[number - 1]
    tell({"calls that change the disk": len(calls), "killed before": len(chosen)})


def test_a_fine_tuning_that_is_killed_ends_with_the_same_bits_without_its_weights_file(tmp_path):
    file = tmp_path / "weights.safetensors"
    save_file(create_model("resnet20_cifar", num_classes=7, seed=9).state_dict(), file)
    recipe = replace(
        RECIPES["adamw"],
        weights=str(file),
        attention="asr:se",
        backbone_rate=0.3,
        warmup_share=0.4,
        train_images=30,
    )
    finish(recipe, tmp_path / "whole")
    expected = outcome(tmp_path / "whole")
    out = tmp_path / "run"
    assert begin(recipe, out, "--save-every", 1, at={3: faults.die}).end() == -9
    file.unlink()
    life = finish(recipe, out, "--save-every", 1)
    assert life.first_step == 2
    assert outcome(out) == expected


def checkpoint_of(step: int) -> tuple[Tensors, State]:
    """Return a checkpoint that can be told from every other."""
    value = torch.full((20_000,), float(step))
    return Tensors({"w": value}, {"w|momentum": value + 1}, {"w": value + 2}), State(step=step)


def write_on_and_on(folder: Path, done: Path) -> None:
    """Write checkpoints until the end; `done` has a line for each that was acknowledged."""
    found, _ = newest_whole(folder)
    step = found.state.step if found else 0
    while True:
        step += 1
        write_checkpoint(folder, ABOUT, *checkpoint_of(step))
        with done.open("a") as stream:
            stream.write(f"{step}\n")


def acknowledged(done: Path) -> int:
    steps = done.read_text().splitlines() if done.exists() else []
    return int(steps[-1]) if steps else 0


@pytest.mark.parametrize(
    "trials",
    [pytest.param(10, id="10 times"), pytest.param(100, id="100 times", marks=pytest.mark.slow)],
)
def test_a_kill_during_writing_leaves_the_newest_or_the_one_before(tmp_path, trials):
    rng, folder, done = random.Random(trials), tmp_path / "run" / "checkpoints", tmp_path / "done"
    count, step = Counter(trials=trials), 0
    for _ in range(trials):
        writer = SERVER.Process(target=write_on_and_on, args=(folder, done))
        writer.start()
        faults.until(lambda last=step: acknowledged(done) > last)
        time.sleep(rng.uniform(0, 0.05))
        writer.kill()
        writer.join()
        count["left something half written"] += bool(left_over(folder.parent))
        sweep(folder)
        assert left_over(folder.parent) == []
        newest, problems = newest_whole(folder)
        assert problems == []
        tensors, state = newest.tensors, newest.state
        step = acknowledged(done)
        assert step <= state.step <= step + 1, "what was acknowledged is there"
        expected = checkpoint_of(state.step)[0]
        for name, part in vars(expected).items():
            found = getattr(tensors, name)
            assert found.keys() == part.keys()
            assert all(torch.equal(found[key], value) for key, value in part.items())
        assert len(checkpoints(folder)) <= 3, "the newest, the one before, and one to be removed"
        count["newest or previous whole"] += 1
    tell(count)


@pytest.fixture
def calls(monkeypatch):
    """Return a list that fills with the calls that order what reaches the disk."""
    seen = []

    def watched(name, real, *args):
        seen.append((name, *(faults.subject(arg) for arg in args)))
        return real(*args)

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, partial(watched, name, getattr(os, name)))
    return seen


def test_the_owner_comes_first_then_parts_before_their_names_and_the_manifest_last(tmp_path, calls):
    path = write_checkpoint(tmp_path, ABOUT, *checkpoint_of(1))
    parts = sorted(part.name for part in path.iterdir())
    assert len(parts) == 7
    first, middle, last = (
        index for index, call in enumerate(calls) if call == ("fsync", path.name)
    )
    for part in parts:
        content, name = calls.index(("fsync", part)), calls.index(("replace", part, part))
        assert content < name < last
        if part == RUN:
            assert name < first
        elif part != MANIFEST:
            assert first < content
            assert name < middle < calls.index(("fsync", MANIFEST))
    assert len(calls) >= 2 * len(parts) + 2


def test_the_name_of_a_new_folder_reaches_the_disk_too(tmp_path, calls):
    write_checkpoint(tmp_path / "new", ABOUT, *checkpoint_of(1))
    assert ("fsync", "new") in calls
    assert ("fsync", tmp_path.name) in calls
