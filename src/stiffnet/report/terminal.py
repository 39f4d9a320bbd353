"""What every result shows in eighty columns of a terminal: sentences, and a table with a bar."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import HORIZONTALS
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from stiffnet.report.blocks import Table as Sheet
from stiffnet.report.short_names import short_names
from stiffnet.report.text import finite, pieces

_EIGHTHS = " ▏▎▍▌▋▊▉"


def told(title: str, lead: str, points: Iterable[str], *, beside: str = "") -> RenderableType:
    """Return a title, a sentence and a list of sentences, for `rich` to print."""
    lines: list[RenderableType] = [Text.assemble((title, "bold"), beside), spoken(lead)]
    for sentence in points:
        bullet = Table.grid(padding=(0, 1))
        bullet.add_row(Text("•", style="cyan"), spoken(sentence))
        lines.append(Padding(bullet, (0, 0, 0, 1)))
    return Group(*lines)


class Lines:
    """A table for `rich` to print: a sign, a step's name, a bar for its measure, then numbers."""

    def __init__(
        self,
        measure: str,
        headings: Iterable[str],
        *,
        steps: Sequence[str],
        name: int,
        bar: int,
        longest: float,
    ) -> None:
        self.table = Table(
            box=HORIZONTALS, padding=(0, 1, 0, 0), header_style="bold", show_edge=False
        )
        self.table.add_column("", width=1)
        self.table.add_column("Step", max_width=name, no_wrap=True, overflow="ellipsis")
        self.table.add_column(measure, width=bar, no_wrap=True)
        for heading in headings:
            self.table.add_column(heading, justify="right", no_wrap=True)
        self._names = dict(zip(steps, short_names(steps, name), strict=True))
        self._bar, self._longest = bar, longest

    def add(
        self, step: str, value: object, numbers: Iterable[str], *, marked: bool, quiet: bool = False
    ) -> None:
        """Add a step; a quiet one is one that does not count, a marked one stands out."""
        sign, colour, style = "", "cyan", ""
        if marked:
            sign, colour, style = "▲", "red", "bold"
        elif quiet:
            sign, colour, style = "○", "dim", "dim"
        self.table.add_row(
            Text(sign, style=colour),
            Text(self._names[step], style=style),
            Text(bar(value, self._longest, self._bar), style=colour),
            *(Text(each, style=style) for each in numbers),
        )


def sheet_lines(sheet: Sheet, *, light: bool = False) -> Table:
    """Return a small table of a page as it is; a light one has no frame, and room for more."""
    look: dict[str, Any] = {"box": HORIZONTALS, "padding": (0, 1, 0, 0), "show_edge": False}
    table = Table(**look if light else {})
    for column in sheet.columns:
        table.add_column(column.heading, justify="right" if column.numeric else "left")
    for row in sheet.rows:
        table.add_row(*(Text(cell.text) for cell in row.cells))
    return table


def bar(value: object, longest: float, width: int) -> str:
    """Draw a number as a bar of at most `width` cells, in eighths of a cell.

    >>> bar(3.0, 4.0, width=4), bar(0.5, 4.0, width=4), bar(None, 4.0, width=4)
    ('███', '▌', '')
    """
    known = finite(value)
    if known is None or longest <= 0:
        return ""
    eighths = round(8 * width * min(max(known / longest, 0.0), 1.0))
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def spoken(sentence: str) -> Text:
    """Return a sentence with its emphasis; nothing in it is read as markup."""
    return Text.assemble(*((piece, "bold" if strong else "") for piece, strong in pieces(sentence)))
