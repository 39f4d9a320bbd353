"""The figures on attention values; plotly draws them in a notebook too."""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import plotly.graph_objects as go

from stiffnet.report.canvas import colour_bar, grid, heat_layout
from stiffnet.report.short_names import short_names
from stiffnet.report.step_axis import add_spread, marker_size, step_layout, told_line
from stiffnet.report.text import finite, number, percent, plot_text
from stiffnet.report.theme import SCALE
from stiffnet.results.drift import Drift
from stiffnet.results.growth import Growth
from stiffnet.results.stripes import StripeReport
from stiffnet.stiffness.given import Floats

CHANNELS = 64  # in one picture; of more, as many evenly spread ones


def score_figure(report: StripeReport) -> go.Figure:
    """Score and cost of every module, in the order in which they run."""
    frame = report.to_frame()
    steps = list(frame["step"])
    figure = go.Figure(layout=step_layout(steps, "share of one"))
    for key, name, series, symbol in (
        ("score", "score: how striped", 0, "circle"),
        ("cost", "cost of constant values", 1, "diamond"),
    ):
        y = [finite(value) for value in frame[key]]
        told = [f"{key} {percent(value)}" for value in y]
        marker = {"size": marker_size(steps), "symbol": symbol}
        figure.add_trace(told_line(steps, y, name, series, told, marker=marker))
    return figure


def spread_figure(report: StripeReport) -> go.Figure:
    """Standard deviation over images of values and of inputs: median and 90 % of the channels."""
    steps = [module.step for module in report.modules]
    figure = go.Figure(layout=step_layout(steps, f"standard deviation over {report.noun}"))
    for name, series, arrays in (
        ("input of the module", 1, [module.input_std for module in report.modules]),
        ("attention value", 0, [module.value_std for module in report.modules]),
    ):
        spans = [
            np.quantile(known, [0.05, 0.5, 0.95]).tolist() if (known := _known(each)).size else None
            for each in arrays
        ]
        told = partial(_told, name)
        add_spread(figure, steps, name, series, spans, among="90 % of channels", told=told)
    largest = [finite(np.max(_known(module.value_std), initial=0)) for module in report.modules]
    figure.update_yaxes(type="log" if all(largest) else "linear")
    return figure


def picture(images: Iterable[Any], values: Floats, what: str, one: str = "image") -> go.Figure:
    """Values of a few images, by channel: stripes where they do not differ by image."""
    chosen = chosen_channels(values.shape[1])
    layout = heat_layout(340, x="channel", y=one, type="category", nticks=14)
    layout["yaxis"] |= {"autorange": "reversed"}
    return go.Figure(
        _heat(
            [str(channel) for channel in chosen],
            [str(image) for image in images],
            values[:, chosen],
            f"{one} %{{y}}, channel %{{x}}<br>{what} <b>%{{z:.4~g}}</b><extra></extra>",
        ),
        layout=layout,
    )


def drift_figure(drift: Drift) -> go.Figure:
    """Mean change of every module's values from epoch to epoch."""
    steps = list(drift.differences)
    figure = _change(drift, drift.means(), [plot_text(step) for step in steps], "module")
    figure.update_layout(height=max(380, 90 + 16 * len(steps)))
    figure.update_yaxes(
        title={"text": ""},
        tickmode="array",
        tickvals=list(range(len(steps))),
        ticktext=[plot_text(name) for name in short_names(steps, 18)],
    )
    return figure


def module_drift_figure(drift: Drift, step: str) -> go.Figure:
    """Mean change of every channel's value of one module from epoch to epoch."""
    found = drift.differences[step]
    chosen = chosen_channels(found.shape[1])
    names = [str(channel) for channel in chosen]
    figure = _change(drift, found.T[chosen], names, "channel")
    few = list(range(0, len(names), max(1, len(names) // 8)))
    figure.update_yaxes(tickmode="array", tickvals=few, ticktext=[names[i] for i in few])
    return figure


def growth_figure(growth: Growth) -> go.Figure:
    """Growth of a perturbation through the steps, and both bounds on it."""
    figure = go.Figure(layout=step_layout(growth.steps, "growth of the perturbation"))
    frame = growth.to_frame()
    for key, name, series, dash, width in (
        ("bound", "Theorem 6.1", 1, "solid", 2),
        ("local_bound", "product of local norms", 4, "dash", 1.6),
        ("growth_max", "largest measured", 0, "dot", 1.4),
        ("growth", "measured", 0, "solid", 2.2),
    ):
        y = [known if (known := finite(value)) else None for value in frame[key]]
        told = [f"{name}: {number(value)} times" for value in y]
        look = {"width": width, "dash": dash, "marker": {"size": 6} if key == "growth" else None}
        figure.add_trace(told_line(growth.steps, y, name, series, told, **look))
    figure.update_yaxes(
        type="log", exponentformat="power", rangemode="normal", dtick=_decades(figure)
    )
    return figure


def _decades(figure: go.Figure) -> int | None:
    """Return how many decades to go from tick to tick; None, as the chart likes, where few are."""
    shown = [math.log10(y) for trace in figure.data for y in trace.y if y]
    covered = max(shown, default=0.0) - min(shown, default=0.0)
    return math.ceil(covered / 8) if covered > 2 else None


def chosen_channels(channels: int) -> list[int]:
    """Return up to `CHANNELS` of the channels, evenly spread.

    >>> len(chosen_channels(256)), chosen_channels(256)[:3], chosen_channels(3)
    (64, [0, 4, 8], [0, 1, 2])
    """
    shown = min(channels, CHANNELS)
    return [i * channels // shown for i in range(shown)]


def _told(name: str, span: Sequence[float] | None) -> str:
    low, middle, high = map(number, span or (None, None, None))
    return f"{name}: sd {middle} (median), {low} to {high}"


def _known(values: Floats) -> Floats:
    return values[np.isfinite(values)]


def _change(drift: Drift, values: Floats, names: list[str], what: str) -> go.Figure:
    layout = heat_layout(340, x="into epoch", y=what, type="category", nticks=14)
    layout["yaxis"] |= {"type": "linear", "autorange": "reversed"}
    heat = _heat(
        [str(later) for _, later in drift.epochs],
        list(range(len(names))),
        values,
        f"{what} %{{text}}, into epoch %{{x}}<br>moved by <b>%{{z:.4~g}}</b><extra></extra>",
    )
    heat.update(zmin=0, text=[[name] * len(drift.epochs) for name in names])
    return go.Figure(heat, layout=layout)


def _heat(x: list[str], y: list[Any], z: Floats, hover: str) -> go.Heatmap:
    return go.Heatmap(
        x=x, y=y, z=grid(z), colorscale=SCALE, colorbar=colour_bar(), hovertemplate=hover
    )
