"""The plain numbers of a run: they come back from JSON as the same bits, or not at all."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

ROW = {"epoch", "step", "test_top1"}  # what a row must have at least


@dataclass
class State:
    """Where a run stands."""

    step: int = 0  # optimizer steps done
    tally: dict[str, Any] = field(default_factory=dict)  # of the epoch under way
    seconds: float = 0.0  # of training in the epoch under way
    history: list[dict[str, Any]] = field(default_factory=list)  # a row for each finished epoch
    best: dict[str, Any] = field(default_factory=dict)  # epoch, step and accuracy of the best row
    precision: dict[str, Any] = field(default_factory=dict)  # of the gradient scaler

    def to_json(self) -> str:
        """Write it down."""
        return json.dumps(vars(self), allow_nan=False) + "\n"


def read_state(text: str) -> State:
    """Undo `State.to_json`; a ValueError says what is not as that would write it."""
    try:
        content = json.loads(text)
    except RecursionError as error:
        raise ValueError("it lies too deep") from error
    names = {each.name for each in fields(State)}
    if not isinstance(content, dict) or content.keys() != names:
        raise ValueError(f"it must hold {', '.join(sorted(names))}")
    _require("step", _is_count(content["step"]))
    _require("seconds", _is_number(content["seconds"]))
    _require("precision", _is_numbers(content["precision"]))
    _require("tally", content["tally"] == {} or _is_tally(content["tally"]))
    _require("best", content["best"] == {} or is_row(content["best"]))
    rows = content["history"]
    _require("history", isinstance(rows, list) and all(map(is_row, rows)))
    _require("history", [row["epoch"] for row in rows] == list(range(1, len(rows) + 1)))
    return State(**content)


def check_place(state: State, epochs: int, per_epoch: int) -> None:
    """Raise a ValueError if no run of so many epochs and steps can stand there."""
    done = len(state.history)
    _require("history", done <= epochs)
    _require("step", done * per_epoch <= state.step <= min(done + 1, epochs) * per_epoch)


def _require(name: str, holds: bool) -> None:
    if not holds:
        raise ValueError(f"{name!r} has a value that no run gives it")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_numbers(value: object) -> bool:
    return isinstance(value, dict) and all(_is_number(number) for number in value.values())


def is_row(value: object) -> bool:
    """Whether a value is what is known of an epoch: numbers by name."""
    if not isinstance(value, Mapping) or not value.keys() >= ROW or not _is_numbers(value):
        return False
    return _is_count(value["epoch"]) and _is_count(value["step"])


def _is_tally(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"loss", "hits"}
        and _is_number(value["loss"])
        and isinstance(value["hits"], list)
        and len(value["hits"]) == 3
        and all(map(_is_count, value["hits"]))
    )
