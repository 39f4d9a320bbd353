"""The tables of a page: text for people, values to sort by, and bars, made from a view's rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stiffnet.report.findings import increment_differs, rows, stiffest_steps
from stiffnet.report.text import (
    clean,
    count,
    decimals_for,
    finite,
    fixed,
    number,
    percent,
    shape,
)
from stiffnet.results.view import StiffnessView

_SPREAD = ("std", "median", "q05", "q25", "q75", "q95")


@dataclass(frozen=True)
class Column:
    """A heading; numbers are aligned to the right and sorted by value."""

    heading: str
    numeric: bool = True
    hint: str = ""


@dataclass(frozen=True)
class Cell:
    """What is shown, what it is sorted by, and the length of its bar as a share of one."""

    text: str
    value: float | None = None
    bar: float | None = None


@dataclass(frozen=True)
class Row:
    """Cells from left to right; a quiet row is one that does not count, a marked one stands out."""

    cells: tuple[Cell, ...]
    quiet: bool = False
    marked: bool = False


@dataclass(frozen=True)
class Table:
    """One table of the page."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


def steps_table(view: StiffnessView) -> Table:
    """One row a step, with everything that is known of it."""
    attention = increment_differs(view)
    stiff = {row["step"] for row in stiffest_steps(view)}
    records = rows(view.steps)
    longest = _largest(records, "nsi_mean")
    decimals = decimals_for([longest])
    lines = []
    for position, row in enumerate(records, start=1):
        cells = [
            Cell(clean(row["step"], longest=120)),
            Cell(count(position), position),
            _fixed(row["nsi_mean"], decimals, longest),
            *(_fixed(row[f"nsi_{key}"], decimals) for key in _SPREAD),
            *([_fixed(row["increment_mean"], decimals)] if attention else []),
            _whole(row["stage"]),
            Cell(shape(row["shape"])),
            Cell("yes" if row["identity"] else "no"),
            Cell("yes" if row["counted"] else "no"),
        ]
        marked = bool(row["counted"]) and row["step"] in stiff
        lines.append(Row(tuple(cells), quiet=not row["counted"], marked=marked))
    columns = (
        Column("Step", numeric=False),
        Column("#", hint="position in the order of execution"),
        Column("NSI", hint="mean over the images"),
        Column("sd", hint="standard deviation over the images"),
        Column("Median"),
        Column("5 %"),
        Column("25 %"),
        Column("75 %"),
        Column("95 %"),
        *([Column("Increment", hint="mean over the images")] if attention else []),
        Column("Stage"),
        Column("State", numeric=False, hint="shape of the state"),
        Column("Identity", numeric=False, hint="is the shortcut an identity?"),
        Column("Counted", numeric=False, hint="does it enter TNS?"),
    )
    return Table("Steps", columns, tuple(lines))


def stages_table(view: StiffnessView) -> Table:
    """One row a stage."""
    records = rows(view.stages)
    longest = _largest(records, "nsi_mean")
    decimals, tns_decimals = decimals_for([longest]), decimals_for(view.stages["tns"])
    lines = [
        Row(
            (
                _whole(row["stage"]),
                _fixed(row["nsi_mean"], decimals, longest),
                _fixed(row["tns"], tns_decimals),
                _fixed(row["tns_se"], tns_decimals),
                Cell(shape(row["shape"])),
                _whole(row["steps"]),
                _whole(row["counted"]),
            )
        )
        for row in records
    ]
    columns = (
        Column("Stage"),
        Column("NSI", hint="mean over the images"),
        Column("TNS", hint="of this stage alone"),
        Column("± se", hint="standard error"),
        Column("State", numeric=False, hint="shape of the state"),
        Column("Steps"),
        Column("Counted", hint="steps that enter TNS"),
    )
    return Table("Stages", columns, tuple(lines))


def labels_table(view: StiffnessView) -> Table:
    """One row a label."""
    records = rows(view.labels)
    longest = _largest(records, "tns")
    decimals = decimals_for([longest])
    lines = [
        Row(
            (
                Cell(clean(row["label"], longest=120)),
                _whole(row["samples"]),
                _fixed(row["tns"], decimals, longest),
                _fixed(row["tns_se"], decimals),
                Cell(percent(row["accuracy"]), finite(row["accuracy"])),
            )
        )
        for row in records
    ]
    columns = (
        Column("Label", numeric=False),
        Column("Images"),
        Column("TNS"),
        Column("± se", hint="standard error"),
        Column("Accuracy"),
    )
    return Table("Labels", columns, tuple(lines))


def relations_table(view: StiffnessView) -> Table:
    """One row a correlation."""
    lines = [
        Row(
            (
                Cell(clean(row["step"], longest=120)),
                Cell(clean(row["target"], longest=60)),
                *(
                    cell
                    for key in ("pearson", "spearman", "kendall")
                    for cell in (
                        _fixed(row[key], 3),
                        _p_value(row[f"{key}_p"]),
                        _p_value(row[f"{key}_holm"]),
                    )
                ),
                _whole(row["samples"]),
                Cell(_note(row["note"])),
            )
        )
        for row in rows(view.relations)
    ]
    columns = (
        Column("Step", numeric=False),
        Column("With", numeric=False),
        *(
            column
            for name in ("Pearson", "Spearman", "Kendall")
            for column in (
                Column(name),
                Column("p", hint=f"p-value of {name}'s coefficient"),
                Column("Holm", hint="the same, corrected for the number of steps"),
            )
        ),
        Column("Images"),
        Column("Note", numeric=False),
    )
    return Table("Relations", columns, tuple(lines))


def _largest(records: Sequence[dict[str, Any]], key: str) -> float:
    return max((finite(row[key]) or 0.0 for row in records), default=0.0)


def _fixed(value: Any, decimals: int, longest: float | None = None) -> Cell:
    known = finite(value)
    bar = round(max(known, 0.0) / longest, 3) if longest and known is not None else None
    return Cell(fixed(value, decimals), known, bar)


def _p_value(value: Any) -> Cell:
    known = finite(value)
    tiny = known is not None and known < 1e-4
    return Cell("< 0.0001" if tiny else number(value, 2), known)


def _whole(value: Any) -> Cell:
    known = finite(value)
    return Cell(clean(value, longest=30) if known is None else count(known), known)


def _note(value: Any) -> str:
    return clean(value, longest=300) if isinstance(value, str) else ""
