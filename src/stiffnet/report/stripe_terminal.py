"""Attention values in eighty columns of a terminal."""

from rich.box import HORIZONTALS
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from stiffnet.report.findings import rows
from stiffnet.report.stripe_view import StripeView
from stiffnet.report.stripe_words import dearest, findings, headline
from stiffnet.report.terminal import bar, told
from stiffnet.report.text import clean, count, fixed, number, percent

_BAR = 10  # cells
_NAME = 26  # cells; a longer name is shortened in its middle


def summary(view: StripeView) -> RenderableType:
    """Return what the values say, for `rich` to print."""
    title = Text(clean(view.title, longest=120), style="bold")
    return told(title, headline(view), findings(view))


def modules_table(view: StripeView) -> Table:
    """Return one row a module, with its score as a bar; `▲` marks the dearest to make constant."""
    table = Table(box=HORIZONTALS, padding=(0, 1, 0, 0), header_style="bold", show_edge=False)
    table.add_column("", width=1)
    table.add_column("Step", max_width=_NAME, no_wrap=True, overflow="ellipsis")
    table.add_column("Score", width=_BAR, no_wrap=True)
    for heading in ("", "cost", "value", "sd", "input sd", "chan."):
        table.add_column(heading, justify="right", no_wrap=True)
    worst = dearest(view)
    for row in rows(view.rows):
        marked = worst is not None and row["step"] == worst["step"]
        style, colour = ("bold", "red") if marked else ("", "cyan")
        table.add_row(
            Text("▲" if marked else "", style=colour),
            Text(clean(row["step"], longest=_NAME), style=style),
            Text(bar(row["score"], 1.0, _BAR), style=colour),
            Text(fixed(row["score"], 3), style=style),
            Text(percent(row["cost"]), style=style),
            Text(number(row["value_mean"], 2), style=style),
            Text(number(row["value_std_mean"], 2), style=style),
            Text(number(row["input_std_mean"], 2), style=style),
            Text(count(row["channels"]), style=style),
        )
    return table
