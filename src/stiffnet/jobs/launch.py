"""Where rows are computed: in processes of this machine, or as jobs of SLURM."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any, Protocol

from stiffnet.errors import StiffnetError, StorageError
from stiffnet.jobs.row_run import Order, run_row
from stiffnet.train.stopping import SIGNALS

SHARED = {"timeout_min", "mem_gb", "nodes", "cpus_per_task", "gpus_per_node", "name"}
WARM = ["stiffnet.jobs.study_rows"]  # imported once, in the process that the others are forked from


class LaunchError(StiffnetError):
    """Rows that cannot be started where they were wanted."""


@dataclass(frozen=True)
class Started:
    """A row that is being computed somewhere."""

    done: Callable[[], bool]
    """Whether it has come to an end, good or bad."""
    reason: Callable[[], str]
    """Why it ended without leaving a row."""
    stop: Callable[[], object]
    """Ask it to end; what it has done is kept."""
    join: Callable[[], object]
    """Wait until it has ended."""


class Launcher(Protocol):
    """Starts rows."""

    slots: int
    """How many at a time."""
    patience: float
    """Seconds between looks at them."""
    crowded: bool
    """Whether rows share a machine, so that one that times something has to be alone on it."""

    def start(self, order: Order) -> Started:
        """Start computing a row."""


class LocalProcesses:
    """A process for each row, forked from one that has imported everything already."""

    patience = 0.05
    crowded = True

    def __init__(self, processes: int = 0) -> None:
        self.slots = processes or os.cpu_count() or 1
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(WARM)
        resource_tracker.ensure_running()  # which would let the signals through again
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            forkserver.ensure_running()  # so that Ctrl-C ends rows in order, and not the server
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def start(self, order: Order) -> Started:
        """Start a process; it goes on if this one is killed, and the next run waits for it."""
        process = self.context.Process(target=_in_process, args=(order,))
        process.start()
        return Started(
            done=lambda: not process.is_alive(),
            reason=lambda: ended(process.exitcode or 0),
            stop=process.terminate,
            join=process.join,
        )


def _in_process(order: Order) -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)  # a run in training listens itself
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    try:
        run_row(order)
    except StorageError as error:
        raise SystemExit(error.exit_code) from None


class SlurmJobs:
    """A job for each row, through submitit; rows are kept in the folder, which all nodes see."""

    slots = 500
    crowded = False

    def __init__(
        self, folder: Path, settings: Mapping[str, str], *, cluster: str = "slurm"
    ) -> None:
        try:
            import submitit
        except ImportError:
            raise LaunchError(
                "`--launcher slurm` needs submitit. Install it with `pip install stiffnet[slurm]`."
            ) from None
        try:
            self.executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
            self.executor.update_parameters(**_parameters(settings))
        except (RuntimeError, NameError, ValueError, TypeError) as error:
            raise LaunchError(
                f"SLURM cannot be used here: {error}. Use `--launcher local`, or check `--slurm`."
            ) from error
        self.patience = 5.0 if cluster == "slurm" else 0.2

    def start(self, order: Order) -> Started:
        """Submit a job; SLURM ends it in its own time, so that nobody waits for that."""
        job = self.executor.submit(run_row, order)
        return Started(
            done=job.done,
            reason=lambda: _slurms_reason(job),
            stop=lambda: job.cancel(check=False),
            join=lambda: None,
        )


def _slurms_reason(job: Any) -> str:
    said = (job.stderr() or "").strip().splitlines()
    last = f": {said[-1][:300]}" if said else ""
    return f"its job {job.job_id} ended as {job.state}{last}."


def ended(code: int) -> str:
    """Say how a process ended that left no row.

    >>> ended(-9), ended(6)
    ('its process was killed by signal 9.', 'nothing could be written. Free some space, or check \
the permissions of the folder.')
    """
    if code < 0:
        return f"its process was killed by signal {-code}."
    if code == StorageError.exit_code:
        return "nothing could be written. Free some space, or check the permissions of the folder."
    return f"its process ended with code {code}."


def _parameters(settings: Mapping[str, str]) -> dict[str, Any]:
    """Parameters for submitit: those of every cluster as they are, others as SLURM's own."""
    return {
        (key if key in SHARED else f"slurm_{key}"): int(value) if value.isdecimal() else value
        for key, value in settings.items()
    }
