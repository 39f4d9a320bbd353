"""A measurement in eighty columns of a terminal."""

from collections.abc import Iterable

from rich.box import HORIZONTALS
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from stiffnet.report.findings import (
    Sentence,
    Strong,
    findings,
    headline,
    increment_differs,
    rows,
    stiffest_steps,
)
from stiffnet.report.text import clean, decimals_for, finite, fixed, number, percent, shape
from stiffnet.results.fold import FoldReport
from stiffnet.results.stiffness import StiffnessReport
from stiffnet.results.stripes import StripeReport
from stiffnet.results.view import StiffnessView

_BAR = 14  # cells, and fewer where the increment needs a column
_BAR_BESIDE_INCREMENT = 10
_NAME = 28  # cells; a longer name is shortened in its middle
_EIGHTHS = " ▏▎▍▌▋▊▉"


def shown(result: object) -> RenderableType:
    """Return what a terminal shows of a result."""
    from stiffnet.report import stripe_terminal
    from stiffnet.report.stripe_view import stripe_view

    if isinstance(result, StripeReport):
        stripes = stripe_view(result)
        return Group(stripe_terminal.summary(stripes), stripe_terminal.modules_table(stripes))
    if isinstance(result, FoldReport):
        return fold_shown(result)
    assert isinstance(result, StiffnessReport)
    view = result.view()
    return Group(summary(view), steps_table(view))


def fold_shown(report: FoldReport) -> RenderableType:
    """Return what was folded, what stays, and what that saves."""
    kinds: dict[str, int] = {}
    for item in report.folded:
        kinds[item.kind] = kinds.get(item.kind, 0) + 1
    lines: list[RenderableType] = [
        "Folded: " + ", ".join(f"{count} × {kind}" for kind, count in kinds.items())
    ]
    lines += [f"Left: {left.name}, because {left.reason}" for left in report.refused]
    table = Table("", "before", "after")
    before, after = report.before, report.after
    table.add_row("parameters", f"{before.parameters:,}", f"{after.parameters:,}")
    if before.macs is not None and after.macs is not None:
        table.add_row("MACs an image", f"{before.macs:,}", f"{after.macs:,}")
        table.add_row("FLOPs an image", f"{before.flops:,}", f"{after.flops:,}")
    if before.seconds and after.seconds:
        times = (before.seconds, after.seconds)
        table.add_row(f"a pass of {report.images} images", *(f"{1e3 * s:.1f} ms" for s in times))
        table.add_row("images/s", *(f"{report.images / s:.0f}" for s in times))
    lines.append(table)
    if report.places:
        lines.append(
            f"Outputs are chosen by their order; {', '.join(report.places)}, before that, differ "
            f"by {report.scaled_error:.1e} of the largest number."
        )
    else:
        lines.append(f"Outputs differ by {report.scaled_error:.1e} of the largest output.")
    return Group(*lines, *report.notes)


def summary(view: StiffnessView) -> RenderableType:
    """Return the total and what it says, for `rich` to print."""
    title = Text(clean(view.title, longest=120), style="bold")
    if finite(view.accuracy) is not None:
        title.append(f", accuracy {percent(view.accuracy)}", style="not bold")
    notes: list[Sentence] = [(Strong("Note: "), clean(text, longest=600)) for text in view.notes]
    return told(title, headline(view), [*findings(view), *notes])


def told(title: Text, lead: Sentence, points: Iterable[Sentence]) -> RenderableType:
    """Return a title, a sentence and a list of sentences, for `rich` to print."""
    lines: list[RenderableType] = [title, _text(lead)]
    for sentence in points:
        bullet = Table.grid(padding=(0, 1))
        bullet.add_row(Text("•", style="cyan"), _text(sentence))
        lines.append(Padding(bullet, (0, 0, 0, 1)))
    return Group(*lines)


def steps_table(view: StiffnessView) -> Table:
    """Return one row a step, by stage, with NSI as a bar; `▲` marks the stiffest counted steps."""
    records = rows(view.steps)
    attention = increment_differs(view)
    width = _BAR_BESIDE_INCREMENT if attention else _BAR
    longest = max((finite(row["nsi_mean"]) or 0.0 for row in records), default=0.0)
    decimals = decimals_for([longest])
    stiff = {row["step"] for row in stiffest_steps(view)}
    table = _empty_table(width, attention=attention)
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
        spread = f"{_short(row['nsi_q05'])}–{_short(row['nsi_q95'])}"
        table.add_row(
            Text(sign, style=colour),
            Text(clean(row["step"], longest=_NAME), style=style),
            Text(bar(row["nsi_mean"], longest, width), style=colour),
            Text(fixed(row["nsi_mean"], decimals), style=style),
            Text(fixed(row["nsi_median"], decimals), style=style),
            Text(spread, style=style),
            *([Text(_short(row["increment_mean"]), style=style)] if attention else []),
        )
    return table


def bar(value: object, longest: float, width: int = _BAR) -> str:
    """Draw a number as a bar of at most `width` cells, in eighths of a cell.

    >>> bar(3.0, 4.0, width=4), bar(0.5, 4.0, width=4), bar(None, 4.0)
    ('███', '▌', '')
    """
    known = finite(value)
    if known is None or longest <= 0:
        return ""
    eighths = round(8 * width * min(max(known / longest, 0.0), 1.0))
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def _empty_table(width: int, *, attention: bool) -> Table:
    table = Table(box=HORIZONTALS, padding=(0, 1, 0, 0), header_style="bold", show_edge=False)
    table.add_column("", width=1)
    table.add_column("Step", max_width=_NAME, no_wrap=True, overflow="ellipsis")
    table.add_column("NSI", width=width, no_wrap=True)
    for heading in ("mean", "median", "5–95 %", *(["incr."] if attention else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _looks(*, marked: bool, counted: bool) -> tuple[str, str, str]:
    """Return a row's sign, the colour of its bar and the style of its text."""
    if marked:
        return "▲", "red", "bold"
    return (" ", "cyan", "") if counted else ("○", "dim", "dim")


def _short(value: object) -> str:
    return number(value, 2)


def _text(sentence: Sentence) -> Text:
    text = Text()
    for piece in sentence:
        if isinstance(piece, Strong):
            text.append(piece.text, style="bold")
        else:
            text.append(piece)
    return text
