"""The tables on differential equations, for page and terminal."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stiffnet.report import cells
from stiffnet.report.blocks import Cell, Column, Table
from stiffnet.report.ode_findings import at_bound, effects, rank_of, span
from stiffnet.report.ode_plots import thinned
from stiffnet.report.text import MISSING, number, percent, rows, tenths
from stiffnet.results import ode

_FEW = 8  # rows of a long table that a terminal shows


def solutions_table(given: Sequence[tuple[ode.OdeSolution, str]]) -> Table:
    """One row a solution."""
    records = [
        vars(solution) | {"steps": len(solution.steps), "rank": rank_of(solution)}
        for solution, _ in given
    ]
    fields = [
        cells.words("Problem", "problem", longest=40),
        cells.words("Solver", "solver", longest=20),
        cells.numbers("Steps", "steps", write=cells.whole),
        cells.numbers("End error", "end_error", "largest relative error of a component",
                      write=_short),
        _span("SI", "stiffness_index",
              "largest |Re λ| of the Jacobian, smallest to largest on the way"),
        _span("SAI", "stiffness_aware_index",
              "‖Δu/Δt‖ / ‖u‖ of a step, smallest to largest on the way"),
        cells.numbers("Rank corr.", "rank", "Spearman's of SI and SAI; none if SI is constant",
                      places=2),
    ]  # fmt: skip
    return cells.table("solutions", "Solutions", records, fields, opened=True)


def euler_table(comparison: ode.EulerComparison, title: str, *, end: str = "") -> Table:
    """One row a step size."""
    fields = [
        cells.numbers("Step", "step", write=lambda value: f"{value:g}"),
        cells.numbers("Steps", "steps", write=cells.whole),
        cells.numbers("max |1 + h λ|", "amplification", "factor of the fastest mode each step"),
        cells.numbers("Largest error", "largest_error", write=_short),
        cells.numbers("End error", "end_error", write=_short),
        cells.words("Errors", "effect", "what happens to them from step to step"),
    ]
    frame = comparison.to_frame()
    frame["effect"] = effects(comparison)
    return cells.table(f"euler{end}", title, rows(frame), fields, opened=True)


def steps_table(given: Sequence[tuple[ode.AdaptiveSteps, str]]) -> Table:
    """One row a solution by RKF45."""
    records = [
        vars(record)
        | {"count": len(record.steps), "bound": at_bound(record)}
        | {"product": record.to_frame()["step_times_si"].median()}
        for record, _ in given
    ]
    fields = [
        cells.words("Problem", "problem", longest=40),
        cells.numbers("Steps", "count", write=cells.whole),
        cells.numbers("Rejected", "rejected", write=cells.whole),
        cells.numbers("Rank corr.", "correlation", "Spearman's of step and SI", places=2),
        cells.numbers("At bound", "bound", "steps within 10 % of the bound", write=percent),
        cells.numbers("h · SI", "product", "median over steps"),
        _span("Step", "steps", "shortest to longest"),
    ]
    return cells.table("adaptive", "Steps of RKF45", records, fields, opened=True)


def theorem_table(
    check: ode.Theorem2Check, title: str, *, few: bool = False, end: str = ""
) -> Table:
    """One row an eigenvalue."""
    fields = [
        cells.numbers("SI", "stiffness_index"),
        cells.numbers("As in the proof", "instant", places=4),
        cells.numbers("√(c + Q)", "predicted", "the proof's last line", places=4),
        cells.numbers(f"Every {check.interval:g}", "observed", write=_short),
        cells.numbers(f"At t = {check.later:g}", "settled", write=_short),
    ]
    frame = check.to_frame()
    shown = frame.iloc[thinned(len(frame), _FEW)] if few else frame
    return cells.table(f"theorem2{end}", title, rows(shown), fields)


def durations_table(given: Sequence[tuple[ode.Encounters, str]]) -> Table:
    """One row a duration: which thresholds give the paper's shares, and what else they give."""
    records = [_both(record) for record, _ in given]
    runs, time = tenths(ode.PAPER_RUNS), tenths(ode.PAPER_TIME)
    fields = [
        cells.numbers("Duration", "duration", write=lambda value: f"{value:g}"),
        cells.numbers("Runs", "runs", write=cells.whole),
        cells.numbers(f"{runs} of runs", "by_runs", "threshold that gives this share"),
        cells.numbers("Time", "time", "inside an encounter, at that threshold", write=percent),
        cells.numbers("Intervals", "intervals", "touched by one, at that threshold", write=percent),
        cells.numbers(f"{time} of time", "by_time", "threshold that gives this share"),
        cells.numbers("Runs then", "runs_then", "with one, at that threshold", write=percent),
    ]
    caption = "Three bodies: thresholds that give the paper's shares"
    return cells.table("durations", caption, records, fields, opened=True)


def _both(record: ode.Encounters) -> dict[str, Any]:
    by_runs = ode.reached(record, "runs", ode.PAPER_RUNS)
    by_time = ode.reached(record, "time", ode.PAPER_TIME)

    def at(column: str, threshold: float | None) -> float | None:
        return None if threshold is None else ode.share_at(record, column, threshold)

    return {
        "duration": record.duration,
        "runs": len(record.closest),
        "by_runs": by_runs,
        "time": at("time", by_runs),
        "intervals": at("intervals", by_runs),
        "by_time": by_time,
        "runs_then": at("runs", by_time),
    }


def encounters_table(record: ode.Encounters, title: str, *, end: str = "") -> Table:
    """One row a threshold."""
    fields = [
        cells.numbers("Distance below", "threshold"),
        cells.numbers("Runs", "runs", "with an encounter", write=percent),
        cells.numbers("Time", "time", "inside an encounter", write=percent),
        cells.numbers("Intervals", "intervals", "that an encounter touches", write=percent),
    ]
    ordered = rows(record.to_frame().sort_values("threshold"))
    note = f"Largest energy error of a run: {_short(record.energy_error.max())}."
    return cells.table(f"encounters{end}", title, ordered, fields, note=note)


def _span(heading: str, key: str, hint: str) -> tuple[Column, Callable[[dict[str, Any]], Cell]]:
    """A column of ranges, sorted by their upper ends."""

    def cell(row: dict[str, Any]) -> Cell:
        text = span(row[key])
        return Cell(text, None if text == MISSING else float(np.nanmax(row[key])))

    return Column(heading, hint=hint), cell


def _short(value: Any) -> str:
    return number(value, 2)
