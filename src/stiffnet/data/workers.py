"""Work on a list of samples in other processes, batch by batch and in order."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from stiffnet.errors import DataError

Sample = TypeVar("Sample")
Batch = TypeVar("Batch")

PATIENCE = 600  # seconds for one batch; a process that takes longer hangs


def check_workers(workers: int) -> None:
    """Raise a DataError if there cannot be so many processes."""
    if workers < 0:
        raise DataError(f"`workers` is {workers}. Give 0 to decode in this process, or more.")


class _Samples(Dataset[Any]):
    """What PyTorch's loader wants; a DataError is handed on as text, which nothing can garble."""

    def __init__(self, read: Callable[[int], Any]) -> None:
        self.read = read

    def __getitem__(self, index: int) -> Any:
        try:
            return self.read(index)
        except DataError as error:
            return str(error)


def in_workers(
    read: Callable[[int], Any],
    indices: Sequence[Iterable[int]],
    collate: Callable[[list[Any]], Batch],
    workers: int,
) -> Iterator[Batch]:
    """Yield ``collate([read(i) for i in batch])`` of every batch; `workers` processes do it.

    A sample that `read` refuses is the text of its DataError.

    Raises:
        DataError: If one of the processes is killed, or nothing comes from it for ten minutes.
    """
    waits = workers > 0 and _in_main_thread()  # elsewhere PyTorch looks whether they are alive
    loader = DataLoader(
        _Samples(read),
        batch_sampler=[[int(index) for index in batch] for batch in indices],
        num_workers=workers,
        collate_fn=collate,
        timeout=PATIENCE if waits else 0,
        generator=torch.Generator(),  # else it draws from the caller's random numbers
    )
    done, reason = 0, ""
    try:
        for batch in loader:
            done += 1
            with _deaths_told_later():
                yield batch
    except (RuntimeError, OSError) as error:
        reason = str(error).partition(". ")[0].strip().rstrip(".")
        if isinstance(error, RuntimeError) and "DataLoader" not in reason:
            raise
    if reason:  # raised out here, the error does not hold on to the other processes
        raise DataError(
            f"A process that reads images ended or hangs, at batch {done + 1} of "
            f"{len(indices)}: {reason}. Memory may have run out: give fewer `workers`, "
            "or 0 to read in this process."
        )


def without_faults(
    read: Callable[[int], Sample],
    indices: Sequence[Iterable[int]],
    collate: Callable[[list[Sample]], Batch],
    workers: int,
) -> Iterator[Batch]:
    """Yield batches of samples.

    Raises:
        DataError: As `read` does, and as `in_workers` does.
    """
    for batch in in_workers(read, indices, partial(_unless_faulty, collate), workers):
        if isinstance(batch, str):
            raise DataError(batch)
        yield batch


def faults_in(
    read: Callable[[int], object], indices: Sequence[Iterable[int]], workers: int
) -> list[str]:
    """Read every sample once, and return what is wrong with each; nothing, mostly."""
    return [fault for part in in_workers(read, indices, _faults, workers) for fault in part]


def _unless_faulty(collate: Callable[[list[Any]], Batch], samples: list[Any]) -> Batch | str:
    fault = next((sample for sample in samples if isinstance(sample, str)), None)
    return collate(samples) if fault is None else fault


def _faults(samples: list[object]) -> list[str]:
    return [sample if isinstance(sample, str) else "" for sample in samples]


@contextlib.contextmanager
def _deaths_told_later() -> Iterator[None]:
    """While the caller works with a batch, hold back the signal that a process has died.

    PyTorch's handler raises wherever the program happens to be, which is nobody's fault there. It
    gets the signal when the next batch is asked for.
    """
    before = signal.getsignal(signal.SIGCHLD)
    if not _in_main_thread() or before is None:
        yield
        return
    told: list[int] = []
    signal.signal(signal.SIGCHLD, lambda number, _: told.append(number))
    try:
        yield
    finally:
        if _in_main_thread():
            signal.signal(signal.SIGCHLD, before)
    if told:
        signal.raise_signal(signal.SIGCHLD)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
