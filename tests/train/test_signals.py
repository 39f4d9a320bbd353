"""Ctrl-C and SIGTERM: the step is finished and kept, the status says which, and nothing is lost."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from train import faults
from train.faults import EVERYTHING, STEPS, begin, finish, kept, outcome, until

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Return what an undisturbed run comes to."""
    out = tmp_path_factory.mktemp("calm") / "run"
    finish(EVERYTHING, out)
    return outcome(out)


@pytest.mark.parametrize(
    ("number", "step"), [(signal.SIGINT, 2), (signal.SIGTERM, STEPS), (signal.SIGTERM, 5)]
)
def test_a_signal_ends_the_run_with_its_status_and_loses_no_step(tmp_path, expected, number, step):
    out = tmp_path / "run"
    life = begin(EVERYTHING, out, at={step: partial(faults.strike, number)})
    assert life.end() == STATUS[number], life.said
    assert f"stiffnet: stopped after step {step}, which is kept in " in life.said
    assert f"kept in {out}. Continue with the same command and `--resume`." in life.said
    assert "Traceback" not in life.said
    assert len(life.drawn) == step
    assert kept(out)[-1].endswith(f"-step-{step:09d}")
    assert finish(EVERYTHING, out).first_step == step
    assert outcome(out) == expected


def test_a_signal_during_the_test_loses_nothing_either(tmp_path, expected):
    out = tmp_path / "run"
    strike = partial(faults.strike, signal.SIGTERM)
    life = begin(EVERYTHING, out, fault=partial(faults.before_test, strike))
    assert life.end() == 143
    assert kept(out)[-1] == f"epoch-0000-step-{STEPS:09d}"
    life = finish(EVERYTHING, out)
    assert [epoch for epoch, _ in life.drawn] == [1] * STEPS
    assert outcome(out) == expected


@pytest.mark.parametrize("call", [20, 30])
def test_a_signal_during_a_save_lets_it_come_to_its_end(tmp_path, expected, call):
    out = tmp_path / "run"
    strike = partial(faults.strike, signal.SIGINT)
    fault = partial(faults.at_disk_call, call, strike, tmp_path / "calls")
    life = begin(EVERYTHING, out, "--save-every", 1, fault=fault)
    assert life.end() == 130
    assert faults.left_over(out) == []
    assert kept(out)[-1].endswith(f"-step-{len(life.drawn):09d}")
    finish(EVERYTHING, out)
    assert outcome(out) == expected


@pytest.mark.parametrize("call", [12, 22])
def test_two_signals_during_a_save_end_it_at_once_and_harm_nothing(tmp_path, expected, call):
    out = tmp_path / "run"
    fault = partial(faults.at_disk_call, call, strike_twice, tmp_path / "calls")
    life = begin(EVERYTHING, out, "--save-every", 1, fault=fault)
    assert life.end() == 130
    assert "Traceback" not in life.said
    assert len((tmp_path / "calls").read_text().splitlines()) < call + 20
    finish(EVERYTHING, out)
    assert outcome(out) == expected


def strike_twice() -> None:
    faults.strike(signal.SIGINT)
    faults.strike(signal.SIGINT)


def test_two_signals_fifty_milliseconds_apart_leave_a_run_that_can_go_on(tmp_path, expected):
    out = tmp_path / "run"
    life = begin(EVERYTHING, out, "--save-every", 1)
    until(lambda: len(life.drawn) >= 2)
    life.send(signal.SIGINT)
    time.sleep(0.05)
    if life.process.is_alive():
        life.send(signal.SIGINT)
    assert life.end(10) == 130
    assert "Traceback" not in life.said
    finish(EVERYTHING, out)
    assert outcome(out) == expected


@contextmanager
def commands(data, outs):
    """Start a real `stiffnet train` for each folder, with worker processes, in its own session."""
    settings = ["epochs=1000", "batch_size=8", "image_size=8", "ema_decay=0.9"]
    options = [part for setting in settings for part in ("--set", setting)]
    base = [sys.executable, "-m", "stiffnet", "train", "resnet20_cifar", "--recipe", "quick"]
    started = [
        subprocess.Popen(
            [*base, "--data", str(data), "--workers", "2", *options, "--out", str(out)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for out in outs
    ]
    try:
        yield started
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def test_the_real_command_ends_with_its_status_and_leaves_no_process(tmp_path):
    outs = [tmp_path / number.name for number in STATUS]
    data = faults.photographs(tmp_path / "photographs")
    with commands(data, outs) as started:
        for number, process, out in zip(STATUS, started, outs, strict=True):
            until((out / "log.jsonl").exists)
            until(lambda session=process.pid: len(faults.processes_of(session)) == 3)
            # A terminal sends Ctrl-C to the workers, too; a queue ends the process that it knows.
            (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
            _, said = process.communicate(timeout=faults.PATIENCE)
            assert process.returncode == STATUS[number], said
            assert said.count("stiffnet: stopped after step ") == 1
            assert "Traceback" not in said
            step = int(said.partition("after step ")[2].partition(",")[0])
            assert kept(out)[-1].endswith(f"-step-{step:09d}")
            until(lambda session=process.pid: not faults.processes_of(session), seconds=10)
