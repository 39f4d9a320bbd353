"""Charts with the steps of a network along the x axis, in the order in which they run."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from stiffnet.report.canvas import canvas
from stiffnet.report.text import plot_text
from stiffnet.report.theme import LIGHT


def step_layout(steps: Sequence[str], title: str, *, height: int = 420) -> dict[str, Any]:
    """Return the layout of an empty chart with a place for each step."""
    layout = canvas(height=height)
    layout["meta"] = {"bands": []}  # the page thins the names out where there is little room
    layout["margin"] |= {"t": 48}
    layout["xaxis"] |= {
        "range": [0.4, len(steps) + 0.6],
        "tickmode": "array",
        "tickvals": list(range(1, len(steps) + 1)),
        "ticktext": [plot_text(step, longest=18) for step in steps],
        "tickangle": -55 if len(steps) > 1 else 0,
        "showgrid": False,
    }
    layout["yaxis"] |= {"title": {"text": title, "standoff": 8}, "rangemode": "tozero"}
    layout["hovermode"] = "x"
    return layout


def spread_band(
    x: Sequence[Any], y: Sequence[Any], name: str, colours: tuple[str, str], **options: Any
) -> go.Scatter:
    """Return a filled outline: what most values lie in; `colours` are roles of line and filling."""
    line, filling = colours
    return go.Scatter(
        x=x,
        y=y,
        fill="toself",
        mode="lines",
        line={"width": 0, "color": LIGHT[line]},
        fillcolor=LIGHT[filling],
        name=name,
        hoverinfo="skip",
        **options,
    )


def marker_size(steps: Sequence[Any], *, few: float = 7, many: float = 4.5) -> float:
    """Return how large a point is, by how many there are."""
    return few if len(steps) <= 80 else many
