"""Two processes for one run: the same weights as one, and one that dies takes nobody's work."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from stiffnet.results.stiffness import StiffnessReport
from stiffnet.train.ranks import leave_together
from tolerances import RTOL
from train import faults
from train.faults import EVERYTHING, Life, finish, kept, left_over, outcome, until

# Every rank mixes its own images, so that mixed ones are others than those of one process.
TAME = replace(EVERYTHING, learning_rate=0.005, mixup=0.0, cutmix=0.0)
SECONDS = 30  # until every rank has ended when one was lost


def begin_ranks(recipe, out, *more, restarts=0, faulty=None, **options) -> list[Life]:
    """Begin a run of two ranks; `faulty` are further options of some of them, by rank."""
    return [
        faults.begin(recipe, out, *more, environ=environ, **options, **(faulty or {}).get(rank, {}))
        for rank, environ in enumerate(faults.as_ranks(2, restarts))
    ]


def end_all(lives) -> list[int]:
    return [life.end() for life in lives]


def finish_ranks(recipe, out, *more, **options) -> list[Life]:
    lives = begin_ranks(recipe, out, *more, **options)
    assert end_all(lives) == [0, 0], lives[0].said + lives[1].said
    assert left_over(out) == []
    return lives


def together(lives) -> list[list]:
    """Return the batches that the ranks drew at the same time, as one batch each."""
    return [
        [epoch, first + second]
        for (epoch, first), (_, second) in zip(*(life.drawn for life in lives), strict=True)
    ]


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """Return what two ranks come to when nothing happens, what they draw, and how long it takes."""
    faults.warm_up()
    out = tmp_path_factory.mktemp("clean") / "run"
    began = time.monotonic()
    lives = finish_ranks(EVERYTHING, out, "--save-every", 1)
    return outcome(out), together(lives), time.monotonic() - began


@pytest.mark.parametrize(
    ("precision", "tolerance"), [("32-true", RTOL["batch32"]), ("64-true", RTOL["batch64"])]
)
def test_two_ranks_give_the_weights_of_one_process(tmp_path, precision, tolerance):
    recipe = replace(TAME, precision=precision)
    alone = finish(recipe, tmp_path / "one")
    ranks = finish_ranks(recipe, tmp_path / "two")
    assert together(ranks) == alone.drawn
    assert {len(batch) for life in ranks for _, batch in life.drawn} == {5, 6}, "uneven shares"
    for name in ("final", "best"):
        one, two = (load_file(tmp_path / n / name / "weights.safetensors") for n in ("one", "two"))
        assert one.keys() == two.keys()
        for key, value in one.items():
            difference = (two[key] - value).abs().max()
            assert float(difference) <= tolerance * float(value.abs().max()), key
    one, two = (outcome(tmp_path / name)["log"] for name in ("one", "two"))
    for mine, theirs in zip(one, two, strict=True):
        assert theirs == pytest.approx(mine, rel=RTOL["batch32"])


def test_a_rank_that_is_killed_ends_the_other_and_a_restart_ends_with_the_same_bits(
    tmp_path, clean
):
    expected, stream, _ = clean
    out = tmp_path / "run"
    first = begin_ranks(EVERYTHING, out, "--save-every", 1, faulty={1: {"at": {5: faults.die}}})
    assert first[1].end() == -9
    assert first[0].end(SECONDS) not in (0, -9)
    assert kept(out)[-1].endswith(f"-step-{4:09d}")
    argv = [word for word in faults.command(EVERYTHING, out) if word != "--resume"]
    second = [  # as torchrun does it: the same command again
        Life(argv, tmp_path / f"again-{environ['RANK']}", environ=environ)
        for environ in faults.as_ranks(2, restarts=1)
    ]
    assert end_all(second) == [0, 0]
    assert [life.first_step for life in second] == [4, 0], "the first speaks for both"
    assert together(second) == stream[4:]
    assert outcome(out) == expected


@pytest.mark.parametrize(
    "trials",
    [pytest.param(2, id="2 times"), pytest.param(50, id="50 times", marks=pytest.mark.slow)],
)
def test_two_ranks_of_which_one_is_killed_anywhere_end_with_the_same_bits(tmp_path, clean, trials):
    rng, count = random.Random(trials), Counter(trials=trials)
    expected, stream, duration = clean
    for trial in range(trials):
        out, victim = tmp_path / str(trial), rng.randrange(2)
        lives = begin_ranks(EVERYTHING, out, "--save-every", 1)
        time.sleep(rng.uniform(0, duration))
        lives[victim].kill()
        other = lives[1 - victim]
        other.process.join(SECONDS / 6)
        if other.process.is_alive():  # torchrun ends what waits for a rank that is gone
            met = "Starting with 2 processes" in lives[0].said
            count["of them left waiting by gloo" if met else "of them before they met"] += 1
            other.kill()
        count["kills"] += lives[victim].process.exitcode == -9
        count["of them during a save"] += bool(left_over(out))
        drawn = [len(life.drawn) for life in lives]
        again = finish_ranks(EVERYTHING, out)
        first = len(stream) - len(again[0].drawn)
        assert together(again) == stream[first:]
        assert first <= min(drawn), "what is not drawn again was drawn by both"
        assert outcome(out) == expected
        count["equal to the undisturbed run"] += 1
    faults.tell(count)
    # A message to a rank that dies just then may never return in gloo: seen in 1 of 53 kills.
    assert count["of them left waiting by gloo"] <= 1 + trials // 10


def test_a_signal_to_one_rank_stops_both_at_the_same_step(tmp_path, clean):
    out = tmp_path / "run"
    strike = partial(faults.strike, signal.SIGTERM)
    lives = begin_ranks(EVERYTHING, out, faulty={1: {"at": {2: strike}}})
    assert end_all(lives) == [143, 143]
    assert [len(life.drawn) for life in lives] == [2, 2]
    assert kept(out)[-1].endswith(f"-step-{2:09d}")
    finish_ranks(EVERYTHING, out)
    assert outcome(out) == clean[0]


@pytest.mark.parametrize("name", ["state.json", "log.jsonl"])
def test_what_the_first_rank_cannot_write_ends_both(tmp_path, name):
    out = tmp_path / "run"
    nth = 2 if name == "state.json" else 1
    fault = partial(faults.at_file, name, nth, faults.full_disk)
    lives = begin_ranks(EVERYTHING, out, faulty={0: {"fault": fault}})
    assert [life.end(SECONDS) for life in lives] == [6, 6]
    for life in lives:
        assert f"{name} could not be written: No space left on device." in life.said


def test_a_file_in_place_of_the_folder_ends_both(tmp_path):
    (tmp_path / "run").write_text("mine")
    lives = begin_ranks(EVERYTHING, tmp_path / "run", home=tmp_path)
    assert [life.end(SECONDS) for life in lives] == [6, 6]
    assert [life.drawn for life in lives] == [[], []]


def test_measuring_on_two_ranks_gives_the_same_numbers_and_writes_once(tmp_path):
    argv = ["measure", "resnet20_cifar", "--data", "digits", "--limit", "50", "--batch-size", "16"]
    assert Life([*argv, "--out", "one"], tmp_path / "alone").end() == 0
    watch = partial(faults.at_disk_call, 0, faults.die)
    lives = [
        Life(
            [*argv, "--out", "two"],
            tmp_path / f"rank-{rank}",
            environ=environ,
            fault=partial(watch, tmp_path / f"calls-{rank}"),
        )
        for rank, environ in enumerate(faults.as_ranks(2))
    ]
    assert end_all(lives) == [0, 0]
    one, two = (StiffnessReport.load(Path(name) / "report.json") for name in ("one", "two"))
    assert two.samples == one.samples == 50
    assert two.tns == pytest.approx(one.tns, rel=RTOL["merge"])
    assert two.tns_se == pytest.approx(one.tns_se, rel=RTOL["merge"])
    assert "replace" in (tmp_path / "calls-0").read_text()
    assert not (tmp_path / "calls-1").exists()
    assert "TNS" in lives[0].said
    assert "TNS" not in lives[1].said


SETTINGS = ["epochs=2", "batch_size=255", "image_size=8", "ema_decay=0.9", "clip_norm=1"]


def torchrun(out: Path, restarts: int) -> subprocess.Popen:
    options = [part for setting in SETTINGS for part in ("--set", setting)]
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         "--max-restarts", str(restarts), "-m", "stiffnet", "train", "resnet20_cifar",
         "--recipe", "quick", "--data", "digits", "--save-every", "1", "--out", str(out), *options],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def rank_of(parent: int, rank: int) -> int:
    """Return the process of a rank, by its environment; newer torchruns give it a session."""
    for pid in faults.children_of(parent):
        if f"\0RANK={rank}\0" in f"\0{Path(f'/proc/{pid}/environ').read_text()}\0":
            return pid
    raise AssertionError(f"there is no rank {rank}")


@pytest.mark.slow
def test_under_torchrun_a_lost_rank_is_survived_or_ends_all(tmp_path):
    results = {}  # restarted ranks need more than one try to find each other on a busy machine
    for name, restarts, hurt in (("clean", 0, False), ("hurt", 3, True), ("ended", 0, True)):
        out, ranks = tmp_path / name, []
        process = torchrun(out, restarts)
        try:
            if hurt:
                until(
                    lambda out=out: (
                        len(kept(out)) > 2 and kept(out)[-1] >= "epoch-0000-step-000000003"
                    )
                )
                ranks = faults.children_of(process.pid)
                os.kill(rank_of(process.pid, 1), signal.SIGKILL)
                began = time.monotonic()
            _, said = process.communicate(timeout=10 * faults.PATIENCE)
        finally:
            if process.poll() is None:
                for pid in (*faults.children_of(process.pid), process.pid):
                    os.kill(pid, signal.SIGKILL)
                process.communicate()
        until(lambda pids=ranks: not any(Path(f"/proc/{pid}").exists() for pid in pids), seconds=10)
        results[name] = process.returncode
        if name == "ended":
            assert time.monotonic() - began < SECONDS
            assert kept(out)
        else:
            assert process.returncode == 0, said
    assert results["ended"] != 0
    assert outcome(tmp_path / "hurt") == outcome(tmp_path / "clean")


def test_ranks_leave_their_group_and_need_none(tmp_path):
    leave_together()
    store = f"file://{tmp_path / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    leave_together()
    assert not torch.distributed.is_initialized()
