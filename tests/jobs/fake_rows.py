"""Kinds of jobs for tests: one that gives a number, and others that end badly until mended."""

import os
import signal
import time

from stiffnet.errors import NonFiniteError, StorageError
from stiffnet.studies.study import Group, Job, Scale, Study, higher


def number(work):
    """Give a number, and leave a mark every time that it is computed."""
    work.folder.mkdir(parents=True, exist_ok=True)
    with open(work.folder / "computed", "a") as stream:
        stream.write("x")
    time.sleep(work.settings.get("seconds", 0))
    added = sum(need.values["accuracy"] for need in work.needs)
    return {"accuracy": work.settings["value"] + 0.1 * work.settings["seed"] ** 2 + added}


def timed(work):
    """Give a number, and a speed that is another every time."""
    return {**number(work), "images_per_second": time.perf_counter()}


def nan(work):
    """Fail as a run does whose loss is no number, until the folder says that it is mended."""
    if not mended(work):
        raise NonFiniteError("`train_loss` is nan after epoch 1. Lower `learning_rate`.")
    return number(work)


def unstable(work):
    """Give a number, but for the last of five seeds, until the folder says that it is mended."""
    return nan(work) if work.settings["seed"] == 4 else number(work)


def bug(work):
    return {"accuracy": 1 // 0}


def full(work):
    raise StorageError("weights could not be written: No space left on device. Free some space.")


def killed(work):
    if not mended(work):
        os.kill(os.getpid(), signal.SIGKILL)
    return number(work)


def mended(work):
    return (work.folder.parent.parent / "mended").exists()


TASKS = {"number": number, "nan": nan, "bug": bug, "full": full, "killed": killed}


def settle(kind, settings):
    return dict(settings)


def job(value, kind="number", needs=(), **settings):
    return Job(kind, {"value": value, **settings}, tuple(needs))


def study(rows, judges=None, name="asr-fake"):
    return Study(
        name=name,
        locator="Table 0",
        claim="The second number is larger than the first.",
        rows=rows,
        metric="accuracy",
        unit="numbers",
        judges=judges or (higher(list(rows)[1], next(iter(rows))),),
        scales={"demo": Scale((Group("made up"),), {})},
    )
