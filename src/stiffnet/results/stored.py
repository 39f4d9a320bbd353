"""The parts of a stiffness report as JSON types, and back; older files lack some of them."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from stiffnet.results.fields import record_of
from stiffnet.stiffness.summary import StiffnessSummary
from stiffnet.trajectory.step import Step

_SITES = ("state_at", "increment_at", "rate_at")


def summary_row(summary: StiffnessSummary) -> dict[str, Any]:
    """Return the statistics as JSON types."""
    return {
        key: value.tolist() if isinstance(value, np.ndarray) else value
        for key, value in summary._asdict().items()
    }


def read_summary(row: dict[str, Any], steps: Sequence[Step]) -> StiffnessSummary:
    """Make statistics of what `summary_row` gave, now or in an earlier version."""
    stages = [step.stage for step in steps if step.counted]
    gated = any(step.gates for step in steps)
    # What version 1's first files do not say; the increment's total only without gates.
    since_then: dict[str, Any] = {
        "counted_steps": len(stages),
        "tns_steps": sum(stages.count(stage) > 1 for stage in stages),
        "increment_tns": None if gated else row["tns"],
        "increment_tns_se": None if gated else row["tns_se"],
    }
    values = {k: np.array(v, dtype="f8") if isinstance(v, list) else v for k, v in row.items()}
    return StiffnessSummary(**{**since_then, **values, "stages": tuple(row["stages"])})


def step_row(step: Step) -> dict[str, Any]:
    """Return a step as JSON types; files say `fold` for what a site calls `entries`."""
    row = asdict(step)
    for name in _SITES:
        row[name]["fold"] = row[name].pop("entries")
    return row


def read_step(row: dict[str, Any]) -> Step:
    """Make a step of what `step_row` gave."""
    sites = {name: {**row[name], "entries": row[name]["fold"]} for name in _SITES}
    return record_of({**row, **sites}, Step)
