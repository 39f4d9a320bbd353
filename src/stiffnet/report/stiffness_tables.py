"""The tables on a measured network: those of the page, and eighty columns of a terminal."""

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table as Lines
from rich.text import Text

from stiffnet.report import cells
from stiffnet.report.blocks import Table
from stiffnet.report.stiffness_findings import (
    findings,
    headline,
    increment_differs,
    stiffest_steps,
)
from stiffnet.report.terminal import bar, lines_table, told
from stiffnet.report.text import (
    Sentence,
    Strong,
    clean,
    decimals_for,
    finite,
    fixed,
    number,
    percent,
    rows,
    shape,
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


def steps_table(view: StiffnessView) -> Table:
    """One row a step, with everything that is known of it."""
    records = [row | {"position": i} for i, row in enumerate(rows(view.steps), start=1)]
    stiff = {row["step"] for row in stiffest_steps(view)}
    longest = _largest(records, "nsi_mean")
    places = decimals_for([longest])
    mean = "mean over the images"
    spread = ("median", "q05", "q25", "q75", "q95")
    increment = [cells.decimals("Increment", "increment_mean", places, hint=mean)]
    fields = (
        cells.words("Step", "step"),
        cells.whole("#", "position", "position in the order of execution"),
        cells.decimals("NSI", "nsi_mean", places, longest=longest, hint=mean),
        cells.decimals("sd", "nsi_std", places, hint="standard deviation over the images"),
        *(
            cells.decimals(heading, f"nsi_{key}", places)
            for heading, key in zip(("Median", "5 %", "25 %", "75 %", "95 %"), spread, strict=True)
        ),
        *(increment if increment_differs(view) else []),
        cells.whole("Stage", "stage"),
        cells.state(),
        cells.yes_or_no("Identity", "identity", "is the shortcut an identity?"),
        cells.yes_or_no("Counted", "counted", "does it enter TNS?"),
    )
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
    longest = _largest(records, "nsi_mean")
    places, tns_places = decimals_for([longest]), decimals_for(view.stages["tns"])
    fields = (
        cells.whole("Stage", "stage"),
        cells.decimals("NSI", "nsi_mean", places, longest=longest, hint="mean over the images"),
        cells.decimals("TNS", "tns", tns_places, hint="of this stage alone"),
        cells.decimals("± se", "tns_se", tns_places, hint="standard error"),
        cells.state(),
        cells.whole("Steps", "steps"),
        cells.whole("Counted", "counted", "steps that enter TNS"),
    )
    return cells.table("stages", "Stages", records, fields, opened=True)


def labels_table(view: StiffnessView) -> Table:
    """One row a label."""
    records = rows(view.labels)
    longest = _largest(records, "tns")
    places = decimals_for([longest])
    fields = (
        cells.words("Label", "label"),
        cells.whole("Images", "samples"),
        cells.decimals("TNS", "tns", places, longest=longest),
        cells.decimals("± se", "tns_se", places, hint="standard error"),
        cells.share("Accuracy", "accuracy"),
    )
    return cells.table("labels", "Labels", records, fields)


def relations_table(view: StiffnessView) -> Table:
    """One row a correlation."""
    fields = (
        cells.words("Step", "step"),
        cells.words("With", "target", longest=60),
        *(
            field
            for name in ("Pearson", "Spearman", "Kendall")
            for field in (
                cells.decimals(name, name.lower(), 3),
                cells.p_value("p", f"{name.lower()}_p", f"p-value of {name}'s coefficient"),
                cells.p_value(
                    "Holm", f"{name.lower()}_holm", "the same, corrected for the number of steps"
                ),
            )
        ),
        cells.whole("Images", "samples"),
        cells.words("Note", "note", longest=300),
    )
    return cells.table(
        "relations", "Relations", rows(view.relations), fields,
        note="Correlation of a step's NSI with another value of the same image. Among many steps "
        "some p is small by chance: “Holm” is p corrected for the number of steps.",
    )  # fmt: skip


def _largest(records: Sequence[dict[str, Any]], key: str) -> float:
    return max((finite(row[key]) or 0.0 for row in records), default=0.0)


def summary(view: StiffnessView) -> RenderableType:
    """Return the total and what it says, for `rich` to print."""
    title = Text(clean(view.title, longest=120), style="bold")
    if finite(view.accuracy) is not None:
        title.append(f", accuracy {percent(view.accuracy)}", style="not bold")
    notes: list[Sentence] = [(Strong("Note: "), clean(text, longest=600)) for text in view.notes]
    return told(title, headline(view), [*findings(view), *notes])


def steps_lines(view: StiffnessView) -> Lines:
    """Return one row a step, by stage, with NSI as a bar; `▲` marks the stiffest counted steps."""
    records = rows(view.steps)
    attention = increment_differs(view)
    width = _BAR_BESIDE_INCREMENT if attention else _BAR
    longest = _largest(records, "nsi_mean")
    places = decimals_for([longest])
    stiff = {row["step"] for row in stiffest_steps(view)}
    headings = ("mean", "median", "5–95 %", *(["incr."] if attention else []))
    table = lines_table("NSI", headings, name=_NAME, bar=width)
    stage: object = None
    for position, row in enumerate(records):
        if position == 0 or row["stage"] != stage:
            stage = row["stage"]
            if position:
                table.add_section()
            label = f"stage {clean(stage, longest=12)} · {shape(row['shape'])}"
            table.add_row("", Text(label, style="italic", overflow="ellipsis", no_wrap=True))
        marked = bool(row["counted"]) and row["step"] in stiff
        sign, colour, style = _looks(marked=marked, counted=bool(row["counted"]))
        spread = f"{number(row['nsi_q05'], 2)}–{number(row['nsi_q95'], 2)}"
        table.add_row(
            Text(sign, style=colour),
            Text(clean(row["step"], longest=_NAME), style=style),
            Text(bar(row["nsi_mean"], longest, width), style=colour),
            Text(fixed(row["nsi_mean"], places), style=style),
            Text(fixed(row["nsi_median"], places), style=style),
            Text(spread, style=style),
            *([Text(number(row["increment_mean"], 2), style=style)] if attention else []),
        )
    return table


def _looks(*, marked: bool, counted: bool) -> tuple[str, str, str]:
    """Return a row's sign, the colour of its bar and the style of its text."""
    if marked:
        return "▲", "red", "bold"
    return (" ", "cyan", "") if counted else ("○", "dim", "dim")
