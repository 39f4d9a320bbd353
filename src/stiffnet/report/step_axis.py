"""Charts with the steps of a network along the x axis, in the order in which they run."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

import plotly.graph_objects as go

from stiffnet.report.canvas import canvas
from stiffnet.report.short_names import short_names
from stiffnet.report.text import number, plot_text
from stiffnet.report.theme import LIGHT, SERIES


def step_layout(steps: Sequence[str], title: str, *, height: int = 420) -> dict[str, Any]:
    """Return the layout of an empty chart with a place for each step."""
    layout = canvas(height=height, y=title)
    layout["meta"] = {"bands": []}  # the page thins the names out where there is little room
    layout["margin"] |= {"t": 48}
    layout["xaxis"] |= {
        "range": [0.4, len(steps) + 0.6],
        "tickmode": "array",
        "tickvals": list(range(1, len(steps) + 1)),
        "ticktext": [plot_text(name) for name in short_names(steps, 18)],
        "tickangle": -55 if len(steps) > 1 else 0,
        "showgrid": False,
    }
    layout["yaxis"] |= {"rangemode": "tozero"}
    layout["hovermode"] = "x"
    return layout


def line(
    x: Sequence[Any],
    y: Sequence[Any],
    name: str,
    colour: str,
    *,
    width: float = 2,
    dash: str = "solid",
    marker: dict[str, Any] | None = None,
    **options: Any,
) -> go.Scatter:
    """Return a line, with points on it where there is a marker; it says something, or is silent."""
    if "hovertemplate" not in options:
        options["hoverinfo"] = "skip"
    drawn = {"color": colour, "width": width, "dash": dash}
    mode = "lines+markers" if marker else "lines"
    return go.Scatter(x=x, y=y, name=name, mode=mode, line=drawn, marker=marker, **options)


def told_line(
    steps: Sequence[str], y: Sequence[Any], name: str, series: int, told: Sequence[str], **look: Any
) -> go.Scatter:
    """Return a line over all steps that tells, at each of them, its name and a text."""
    names = map(plot_text, steps)
    return line(
        list(range(1, len(steps) + 1)), y, name, LIGHT[f"series{series % SERIES}"],
        customdata=[list(pair) for pair in zip(names, told, strict=True)],
        hovertemplate="<b>%{customdata[0]}</b><br>%{customdata[1]}<extra></extra>", **look,
    )  # fmt: skip


def networks_figure(
    networks: Sequence[tuple[str, Sequence[str], Sequence[Any]]], title: str
) -> go.Figure:
    """Draw a line for the name, the steps and the values of each network."""
    figure = go.Figure(layout=step_layout(networks[0][1], title))
    for order, (network, steps, values) in enumerate(networks):
        name = plot_text(network, longest=40)
        told, marker = [f"{name}: {number(value)}" for value in values], marker_size(steps)
        figure.add_trace(told_line(steps, values, name, order, told, marker={"size": marker}))
    return figure


def spread_band(
    runs: Iterable[Iterable[tuple[float, Any, Any]]],
    name: str,
    role: str,
    series: int,
    **options: Any,
) -> go.Scatter:
    """Return filled outlines, one for each run of (x, low, high), of `half` or `most` of values."""
    x: list[float | None] = []
    y: list[float | None] = []
    for run in runs:
        places, low, high = zip(*run, strict=True)
        x += [*places, *reversed(places), None]
        y += [*low, *reversed(high), None]
    return go.Scatter(
        x=x[:-1], y=y[:-1], name=name, mode="lines",
        line={"width": 0, "color": LIGHT[f"series{series}"]},
        fill="toself", fillcolor=LIGHT[f"{role}{series}"], hoverinfo="skip", **options,
    )  # fmt: skip


def add_spread(
    figure: go.Figure,
    steps: Sequence[str],
    name: str,
    series: int,
    spans: Sequence[Sequence[float] | None],
    *,
    among: str,
    told: Callable[[Sequence[float] | None], str],
) -> None:
    """Draw (low, middle, high) of every step, as a line in a band; a gap where there is nothing.

    The legend says `among` what the band is, and `told` what a step says of its span.
    """
    there = groupby(enumerate(spans, start=1), key=lambda item: item[1] is not None)
    runs = [[(i, span[0], span[2]) for i, span in run if span] for known, run in there if known]
    figure.add_trace(spread_band(runs, f"{among}, {name}", "most", series, showlegend=False))
    middle = [None if span is None else span[1] for span in spans]
    marker = {"size": marker_size(steps, few=6, many=4)}
    figure.add_trace(told_line(steps, middle, name, series, [*map(told, spans)], marker=marker))


def marker_size(steps: Sequence[Any], *, few: float = 7, many: float = 4.5) -> float:
    """Return how large a point is, by how many there are."""
    return few if len(steps) <= 80 else many
