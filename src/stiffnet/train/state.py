"""The plain numbers of a run: they come back from JSON as the same bits, or not at all."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from msgspec import Meta

from stiffnet.schema import fitted, parsed
from stiffnet.train.tasks.base import Task

Count = Annotated[int, Meta(ge=0)]
Row = dict[str, int | float | None]  # None where a number does not exist, such as a TNS


@dataclass
class State:
    """Where a run stands."""

    step: Count = 0  # optimizer steps done
    tally: dict[str, int | float] = field(default_factory=dict)  # of the epoch under way
    seconds: float = 0.0  # of training in the epoch under way
    history: list[Row] = field(default_factory=list)  # a row for each finished epoch
    best: Row = field(default_factory=dict)  # epoch, step and the deciding column of the best row
    precision: dict[str, int | float] = field(default_factory=dict)  # of the gradient scaler

    def to_json(self) -> str:
        """Write it down."""
        return json.dumps(vars(self), allow_nan=False) + "\n"


def read_state(raw: bytes) -> State:
    """Undo `State.to_json`; a ValueError says what is not as that would write it."""
    content = parsed(raw)
    names = {each.name for each in fields(State)}
    if not isinstance(content, dict) or content.keys() != names:
        raise ValueError(f"it must hold {', '.join(sorted(names))}")
    state = fitted({**content, "tally": _since_then(content["tally"])}, State)
    epochs = list(range(1, len(state.history) + 1))
    _require("best", not state.best or _is_epoch(state.best))
    _require("history", all(map(_is_epoch, state.history)))
    _require("history", [row["epoch"] for row in state.history] == epochs)
    return state


def read_row(raw: bytes) -> Row:
    """Return what is known of an epoch; a ValueError says why it is not a row of a log."""
    content = parsed(raw)
    try:
        row = fitted(content, Row)
    except ValueError:
        row = {}
    if not _is_epoch(row):
        raise ValueError("it is not an epoch of a run")
    return row


def check_place(state: State, task: Task, epochs: int, per_epoch: int) -> None:
    """Raise a ValueError if no run of so many epochs and steps can stand there."""
    done = len(state.history)
    _require("history", done <= epochs)
    _require("step", done * per_epoch <= state.step <= min(done + 1, epochs) * per_epoch)
    rows = [*state.history, state.best] if state.history else []
    _require("history", all(isinstance(row.get(task.best), int | float) for row in rows))
    counts = {"samples", *task.counts}
    _require("tally", state.tally.keys() in (set(), counts | {"loss", *task.sums}))
    _require("tally", all(isinstance(state.tally.get(name, 0), int) for name in counts))


def _since_then(tally: Any) -> Any:
    """Return a tally as we write it; the first version had a list of counts."""
    if isinstance(tally, dict) and tally.keys() == {"loss", "hits"}:
        counts = zip(("samples", "top1", "top5"), fitted(tally["hits"], list[Count]), strict=True)
        return {**dict(counts), "loss": tally["loss"]}
    return tally


def _require(name: str, holds: bool) -> None:
    if not holds:
        raise ValueError(f"{name!r} has an impossible value")


def _is_epoch(row: Mapping[str, object]) -> bool:
    return all(type(row.get(key)) is int and row[key] >= 0 for key in ("epoch", "step"))  # type: ignore[operator]
