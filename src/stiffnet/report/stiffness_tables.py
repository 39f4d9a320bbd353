"""The tables on a measured network: those of the page, and eighty columns of a terminal."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from rich.console import RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from stiffnet.report import cells
from stiffnet.report.blocks import Table
from stiffnet.report.stiffness_findings import findings, headline, increment_differs, stiffest_steps
from stiffnet.report.terminal import Lines, told
from stiffnet.report.text import (
    clean,
    decimals_for,
    finite,
    fixed,
    number,
    percent,
    rows,
    shape,
    strong,
)
from stiffnet.results.view import StiffnessView

_BAR, _BAR_BESIDE_INCREMENT = 14, 10  # cells of a terminal
_NAME = 28  # cells; a longer name is shortened in its middle


def tables(view: StiffnessView) -> list[Table]:
    """Return the tables of the page, as far as there is something in them."""
    found = [steps_table(view), stages_table(view)]
    if view.labels is not None:
        found.append(labels_table(view))
    if view.relations is not None:
        found.append(relations_table(view))
    return found


def totals_table(views: Sequence[StiffnessView]) -> Table:
    """One row a network, the stiffest first."""
    records = [
        {
            "network": view.title,
            "tns": view.tns if view.tns_steps else None,
            "tns_se": view.tns_se if view.tns_steps else None,
            "increments": view.increment_total,
            "accuracy": None if finite(view.accuracy) is None else 100 * (view.accuracy or 0.0),
            "samples": view.samples,
        }
        for view in views
    ]
    records.sort(key=lambda row: -(finite(row["tns"]) or 0.0))
    longest, places = _scale(records, "tns")
    fields = [
        cells.words("Network", "network", longest=80),
        cells.numbers("TNS", "tns", "total neural stiffness", places=places, longest=longest),
        cells.numbers("±", "tns_se", "standard error", places=places),
        cells.numbers("Increments", "increments", "the total with the gates in", places=places),
        cells.numbers("Accuracy, %", "accuracy", places=2),
        cells.numbers("Samples", "samples", write=cells.whole),
    ]
    return cells.table("totals", "Total stiffness of all networks", records, fields, opened=True)


def steps_table(view: StiffnessView) -> Table:
    """One row a step, with everything that is known of it."""
    records = [row | {"position": i} for i, row in enumerate(rows(view.steps), start=1)]
    stiff = {row["step"] for row in stiffest_steps(view)}
    longest, places = _scale(records, "nsi_mean")
    mean = f"mean over the {view.noun}"
    quantiles = {"Median": "median", "5 %": "q05", "25 %": "q25", "75 %": "q75", "95 %": "q95"}
    increment = cells.numbers("Increment", "increment_mean", mean, places=places)
    fields = [
        cells.words("Step", "step"),
        cells.numbers("#", "position", "position in the order of execution", write=cells.whole),
        cells.numbers("NSI", "nsi_mean", mean, places=places, longest=longest),
        cells.numbers("sd", "nsi_std", f"standard deviation over the {view.noun}", places=places),
        *(cells.numbers(name, f"nsi_{key}", places=places) for name, key in quantiles.items()),
        *([increment] if increment_differs(view) else []),
        cells.numbers("Stage", "stage", write=cells.whole),
        cells.words("State", "shape", "shape of the state", write=shape),
        cells.words("Identity", "identity", "is the shortcut an identity?", write=cells.yes_or_no),
        cells.words("Counted", "counted", "does it enter TNS?", write=cells.yes_or_no),
    ]
    return cells.table(
        "steps", "Steps", records, fields, opened=True,
        note="A heading sorts by its column. Bold: the stiffest counted steps. Grey: not counted "
        "in TNS.",
        quiet=lambda row: not row["counted"],
        marked=lambda row: bool(row["counted"]) and row["step"] in stiff,
    )  # fmt: skip


def stages_table(view: StiffnessView) -> Table:
    """One row a stage."""
    records = rows(view.stages)
    longest, places = _scale(records, "nsi_mean")
    own = decimals_for(view.stages["tns"])
    fields = [
        cells.numbers("Stage", "stage", write=cells.whole),
        cells.numbers(
            "NSI", "nsi_mean", f"mean over the {view.noun}", places=places, longest=longest
        ),
        cells.numbers("TNS", "tns", "of this stage alone", places=own),
        cells.numbers("± se", "tns_se", "standard error", places=own),
        cells.words("State", "shape", "shape of the state", write=shape),
        cells.numbers("Steps", "steps", write=cells.whole),
        cells.numbers("Counted", "counted", "steps that enter TNS", write=cells.whole),
    ]
    return cells.table("stages", "Stages", records, fields, opened=True)


def labels_table(view: StiffnessView) -> Table:
    """One row a label."""
    records = rows(view.labels)
    longest, places = _scale(records, "tns")
    fields = [
        cells.words("Label", "label"),
        cells.numbers(view.noun.capitalize(), "samples", write=cells.whole),
        cells.numbers("TNS", "tns", places=places, longest=longest),
        cells.numbers("± se", "tns_se", "standard error", places=places),
        cells.numbers("Accuracy", "accuracy", write=percent),
    ]
    return cells.table("labels", "Labels", records, fields)


def relations_table(view: StiffnessView) -> Table:
    """One row a correlation."""
    fields = [
        cells.words("Step", "step"),
        cells.words("With", "target", longest=60),
        *cells.coefficients(places=3),
        cells.numbers(view.noun.capitalize(), "samples", write=cells.whole),
        cells.words("Note", "note", write=cells.remark),
    ]
    note = (
        f"Correlation of a step's NSI with another value of the same {view.noun[:-1]}. Among many "
        "steps some p is small by chance: “Holm” is p corrected for the number of steps."
    )
    return cells.table("relations", "Relations", rows(view.relations), fields, note=note)


def _scale(records: Sequence[dict[str, Any]], key: str) -> tuple[float, int]:
    """Return the largest number of a column, and the decimals that all of them are written with."""
    longest = max((finite(row[key]) or 0.0 for row in records), default=0.0)
    return longest, decimals_for([longest])


def summary(view: StiffnessView) -> RenderableType:
    """Return the total and what it says, for `rich` to print."""
    title, beside = clean(view.title, longest=120), ""
    if finite(view.accuracy) is not None:
        among = "" if view.top5 is None else f" (top-1), {percent(view.top5)} (top-5)"
        beside = f", accuracy {percent(view.accuracy)}{among}"
    notes = [f"{strong('Note: ')}{clean(text, longest=600)}" for text in view.notes]
    return told(title, headline(view), [*findings(view), *notes], beside=beside)


def steps_lines(view: StiffnessView) -> RichTable:
    """Return one row a step, by stage, with NSI as a bar; `▲` marks the stiffest counted steps."""
    records = rows(view.steps)
    attention = increment_differs(view)
    width = _BAR_BESIDE_INCREMENT if attention else _BAR
    longest, places = _scale(records, "nsi_mean")
    stiff = {row["step"] for row in stiffest_steps(view)}
    headings = ("mean", "median", "5–95 %", *(["incr."] if attention else []))
    names = [row["step"] for row in records]
    lines = Lines("NSI", headings, steps=names, name=_NAME, bar=width, longest=longest)
    for order, (stage, members) in enumerate(groupby(records, key=lambda row: row["stage"])):
        if order:
            lines.table.add_section()
        for place, row in enumerate(members):
            if place == 0:
                label = f"stage {clean(stage, longest=12)} · {shape(row['shape'])}"
                named = Text(label, style="italic", overflow="ellipsis", no_wrap=True)
                lines.table.add_row("", named)
            numbers = [
                fixed(row["nsi_mean"], places),
                fixed(row["nsi_median"], places),
                f"{number(row['nsi_q05'], 2)}–{number(row['nsi_q95'], 2)}",
                *([number(row["increment_mean"], 2)] if attention else []),
            ]
            counts = bool(row["counted"])
            marked = counts and row["step"] in stiff
            lines.add(row["step"], row["nsi_mean"], numbers, marked=marked, quiet=not counts)
    return lines.table
