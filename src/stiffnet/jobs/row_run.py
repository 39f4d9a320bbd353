"""Computing one row of a study, in a process of its own."""

import math
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from stiffnet.errors import StiffnetError
from stiffnet.jobs.row_store import RowStore
from stiffnet.provenance import versions_of
from stiffnet.results.study import StudyRow, Values
from stiffnet.train.stopping import Stopped
from stiffnet.words import first_line

DATA = "data"  # the setting that names a data set
FILES = ("style", "loss_weights")  # settings that may name files
COMPUTING = "seconds of computing"  # of the processor, however busy the machine was
OTHERWISE = "came out otherwise"  # what a row had before, where computing it again gave another
TIMED = ("images_per_second",)  # values that are never the same twice


@dataclass(frozen=True)
class Work:
    """What a kind of job gets to see."""

    settings: Mapping[str, Any]
    needs: tuple[StudyRow, ...]
    """Rows that it is made from."""
    folder: Path
    """Its own, which may hold what a killed process left."""
    need_folders: tuple[Path, ...]
    data: str
    """What `open_data` opens: the name of its data set with the place."""
    command: str
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that settings name, by the setting; `FILES` may."""


Task = Callable[[Work], Values]
"""A kind of job: it returns values, or raises."""


@dataclass(frozen=True)
class Order:
    """A row to compute, and what is needed for that beside what determines it."""

    root: str
    row: StudyRow
    """Without values yet."""
    task: Task
    data: str = ""
    command: str = ""
    threads: int = 0
    """How many to compute with; 0 for as many as torch likes."""
    again: bool = False
    """Whether a row that is there is computed again, for what it leaves in its folder."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Where the files are that settings name."""


def run_row(order: Order) -> StudyRow:
    """Compute a row and keep it, unless it is there; a failure is kept with its reason.

    Another process that is computing the same row is waited for.

    Raises:
        SystemExit: If a signal ended it, with the signal's code.
        StorageError: If nothing could be written, not even why.
    """
    store, row = RowStore(Path(order.root)), order.row
    if order.threads:
        torch.set_num_threads(order.threads)
    with store.locked(row.address):
        known = store.finished(row.address)
        if known is not None and not order.again:
            return known
        store.forget_failure(row.address)
        began, computed = time.perf_counter(), time.process_time()
        values, error = _values(order, store)
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
        facts = {
            "seconds": f"{time.perf_counter() - began:.1f}",
            COMPUTING: f"{time.process_time() - computed:.1f}",
            "versions": versions_of("stiffnet", "torch", "timm", "torchvision", "numpy"),
            "python": platform.python_version(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, {device}",
            "threads": str(torch.get_num_threads()),
            **({"data": order.data} if order.data else {}),
            **({"command": order.command} if order.command else {}),
            **_otherwise(known, values),
        }
        made = replace(row, values=values, facts=facts, error=error)
        store.write(made)
        return made


def _otherwise(known: StudyRow | None, values: Values) -> dict[str, str]:
    """Say what the first value was that is another now; nothing where all are the same."""
    if known is None or not values:
        return {}
    before = known.values
    other = [k for k, v in values.items() if k not in TIMED and (k not in before or before[k] != v)]
    if not other:
        return {k: v for k, v in known.facts.items() if k == OTHERWISE}
    had = before.get(other[0], "nothing")
    return {OTHERWISE: f"{other[0]} was {had} before and is {values[other[0]]} now"}


def _values(order: Order, store: RowStore) -> tuple[Values, str]:
    needs = tuple(store.finished(address) for address in order.row.needs)
    folders = tuple(store.work(address) for address in order.row.needs)
    own = store.work(order.row.address)
    found = tuple(need for need in needs if need is not None)
    if len(found) < len(needs):
        return {}, "a row that it is made from is not there. Run the study again."
    try:
        work = Work(order.row.settings, found, own, folders, order.data, order.command, order.files)
        values = order.task(work)
    except Stopped as stopped:  # by a signal: nothing failed, and the row can be resumed
        raise SystemExit(stopped.exit_code) from None
    except StiffnetError as error:
        return {}, str(error)
    except MemoryError:
        return {}, "there was not enough memory."
    except Exception as error:  # a bug of ours or of a library: the other rows go on
        return {}, f"{type(error).__name__}: {first_line(error)}."
    strange = _not_finite(values)
    return ({}, f"its value {strange}, which is not a finite number.") if strange else (values, "")


def _not_finite(value: Any, name: str = "") -> str:
    """Name the first value that is NaN or infinite; nothing if all are finite.

    >>> _not_finite({"accuracy": 98.1, "nsi": [0.1, float("nan")]})
    '`nsi` is nan'
    """
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"`{name}` is {value}"
    inner: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        inner = [(f"{name}, {key}" if name else key, each) for key, each in value.items()]
    elif isinstance(value, (list, tuple)):
        inner = [(name, each) for each in value]
    return next((bad for key, each in inner if (bad := _not_finite(each, key))), "")
