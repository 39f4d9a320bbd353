"""The figures on differential equations; plotly draws them in a notebook too."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from stiffnet.report.canvas import canvas
from stiffnet.report.step_axis import line
from stiffnet.report.text import finite, number, plot_text
from stiffnet.report.theme import LIGHT, SERIES
from stiffnet.results import ode

POINTS = 3000  # of one line; of more, as many evenly spread ones
BEGUN = 1000  # steps before this part of the interval are left out: solvers start with a tiny one

IN_TIME = "t = %{x:.4~g}"
POINT = {"size": 6}
_BESIDE = (0, 2, 3, 4, 5)  # series beside that of a bound


def index_figure(solution: ode.OdeSolution) -> go.Figure:
    """SI and SAI along the solution."""
    some = thinned(len(solution.steps))
    indices = {"SI": solution.stiffness_index[:-1], "SAI": solution.stiffness_aware_index}
    lines = [
        _told(solution.times[:-1][some], values[some], name, i, IN_TIME, f"{name} %{{y:.4~g}}")
        for i, (name, values) in enumerate(indices.items())
    ]
    return _chart("time", "per unit of time", lines, time=solution.times, y="log")


def size_figure(solution: ode.OdeSolution) -> go.Figure:
    """The solver's steps along the solution."""
    some = thinned(len(solution.steps))
    times, steps = solution.times[:-1][some], solution.steps[some]
    line = _told(times, steps, "step", 2, IN_TIME, "step %{y:.4~g}")
    figure = _chart("time", "step", [line], time=solution.times, y="log")
    return figure.update_layout(showlegend=False, margin_t=16)


def state_figure(solution: ode.OdeSolution) -> go.Figure:
    """The first components, each divided by its largest size."""
    some = thinned(len(solution.times))
    lines = []
    for i, values in enumerate(solution.states.T[:SERIES]):
        largest = np.abs(values).max()
        scaled = values[some] / largest if largest > 0 else values[some]
        told = f"y{i + 1} / {number(largest)} = %{{y:.4~g}}"
        lines.append(_told(solution.times[some], scaled, f"y{i + 1}", i, IN_TIME, told))
    return _chart("time", "component / its largest size", lines, time=solution.times)


def amplification_figure(comparison: ode.EulerComparison) -> go.Figure:
    """What a step does to the fastest mode, by step size, and the bound on it."""
    steps, grown = comparison.steps, comparison.amplification
    points = []
    for unstable, name, symbol in ((False, "stable", "circle"), (True, "unstable", "x")):
        chosen = (grown > 1) == unstable
        told = f"<b>h = %{{x:.4~g}}</b>, {name}<br>× %{{y:.4~g}} each step<extra></extra>"
        marker = {"size": 11, "symbol": symbol, "color": LIGHT[f"series{int(unstable)}"]}
        points.append(_points(steps[chosen], grown[chosen], name, marker, told))
    figure = _chart("step size h", "max |1 + h λ|", points)
    _mark(figure, f"bound {comparison.limit:.4g} ", x=comparison.limit)
    _mark(figure, "", y=1.0)
    figure.update_xaxes(range=[0, 1.12 * max(steps.max(), comparison.limit)])
    return figure.update_yaxes(range=[0, 1.15 * max(grown.max(), 1.0)])


def first_steps_figure(comparison: ode.EulerComparison) -> go.Figure:
    """The first component in the first steps of each size."""
    shown = 8 * comparison.steps.max()
    lines = []
    for i, (times, states) in enumerate(zip(comparison.times, comparison.states, strict=True)):
        near = times - times[0] <= shown * (1 + 1e-9)
        name = f"h = {comparison.steps[i]:g}"
        told = f"{name}: %{{y:.4~g}}"
        lines.append(_told(times[near], states[near, 0], name, i, IN_TIME, told, marker=POINT))
    return _chart("time", "y1", lines)


def error_figure(comparison: ode.EulerComparison) -> go.Figure:
    """How far each step size is from the exact solution; growth is dashed."""
    lines = []
    for i, (times, errors) in enumerate(zip(comparison.times, comparison.errors, strict=True)):
        factor, some = comparison.amplification[i], thinned(len(times))[1:]
        name = f"h = {comparison.steps[i]:g}: × {number(factor)} each step"
        values = np.where(errors > 0, errors, np.nan)[some]
        dash = "dash" if factor > 1 else "solid"
        lines.append(_told(times[some], values, name, i, IN_TIME, "error %{y:.3~g}", dash=dash))
    return _chart("time", "|y − exact|", lines, y="log")


def steps_figure(records: Sequence[tuple[ode.AdaptiveSteps, str]]) -> go.Figure:
    """Steps against SI, and above which step the method would grow what should decay."""
    drawn = []
    for i, (record, name) in enumerate(records):
        chosen = np.flatnonzero(begun(record))
        some = chosen[thinned(len(chosen))]
        marker = {"size": 5, "color": LIGHT[f"series{_BESIDE[i % 5]}"], "opacity": 0.6}
        told = "SI %{x:.4~g}<br>step %{y:.4~g}<extra></extra>"
        si = record.stiffness_index[some]
        drawn.append(_points(si, record.steps[some], plot_text(name), marker, told))
    every = np.concatenate([record.stiffness_index[begun(record)] for record, _ in records])
    known = every[every > 0]
    if known.size:
        span = np.array([known.min() / 1.5, 1.5 * known.max()])
        stability = records[0][0].stability
        name = f"stability: h · SI = {number(stability)}"
        drawn.append(line(list(span), list(stability / span), name, LIGHT["series1"], width=2))
    figure = _chart("SI", "step h", drawn, x="log", y="log")
    return figure.update_layout(legend_itemsizing="constant")


def step_time_figure(record: ode.AdaptiveSteps) -> go.Figure:
    """Steps in time, beside the longest stable one."""
    some = thinned(len(record.steps))
    times, si = record.times[some], record.stiffness_index[some]
    bound = np.divide(record.stability, si, out=np.full_like(si, np.nan), where=si > 0)
    limit = f"stability: {number(record.stability)} / SI"
    lines = [
        _told(times, bound, limit, 1, IN_TIME, "%{y:.4~g}"),
        _told(times, record.steps[some], "step of RKF45", 0, IN_TIME, "%{y:.4~g}"),
    ]
    return _chart("time", "step h", lines, time=record.times, y="log")


def theorem_figure(check: ode.Theorem2Check) -> go.Figure:
    """SAI / SI read in three ways, beside the limit of the theorem."""
    readings = {
        "as in the proof": check.instant,
        f"observed every {check.interval:g}": check.observed,
        f"later on, at t = {check.later:g}": check.settled,
    }
    lines = []
    for i, (name, values) in enumerate(readings.items()):
        shown, told = np.where(values > 0, values, np.nan), f"{name}: %{{y:.4~g}}"
        si = check.stiffness_index
        lines.append(_told(si, shown, name, i, "SI %{x:.4~g}", told, marker=POINT))
    figure = _chart("SI = |λ₁|", "SAI / SI", lines, x="log", y="log")
    _mark(figure, f"√c = {check.limit:.4g}", y=check.limit, right=True)
    return figure


def shares_figure(record: ode.Encounters) -> go.Figure:
    """Shares of runs, intervals and time by the definition of an encounter."""
    frame = record.to_frame().sort_values("threshold")
    lines = []
    for column, name, series in (
        ("runs", "runs with an encounter", 0),
        ("intervals", f"intervals of {record.interval:g} with one", 2),
        ("time", "time inside one", 1),
    ):
        values, told = 100 * frame[column].to_numpy(), f"{name}: %{{y:.3~g}} %"
        lines.append(_told(frame["threshold"], values, name, series, "below %{x:.3~g}", told))
    figure = _chart("an encounter is a distance below", "share (%)", lines, x="log")
    for share, what in ((ode.PAPER_RUNS, "runs"), (ode.PAPER_TIME, "intervals")):
        _mark(figure, f"paper: {100 * share:.1f} % of {what}", y=100 * share)
    figure.update_xaxes(tickformat="~g")
    return figure.update_yaxes(range=[0, 105])


def trade_figure(records: Sequence[tuple[ode.Encounters, str]]) -> go.Figure:
    """Share of runs against share of time, as the definition of an encounter changes."""
    told = "below %{customdata}<br>%{y:.3~g} % of runs, %{x:.3~g} % of the time<extra></extra>"
    drawn = []
    for i, (record, name) in enumerate(records):
        frame = record.to_frame().sort_values("threshold")
        x, y = list(100 * frame["time"]), list(100 * frame["runs"])
        levels = [number(value) for value in frame["threshold"]]
        colour = LIGHT[f"series{i % SERIES}"]
        drawn.append(line(x, y, plot_text(name), colour, customdata=levels, hovertemplate=told))
    star = {"size": 15, "symbol": "star", "color": LIGHT["ink"]}
    told = "paper: %{y:.1f} % of runs, %{x:.1f} % of the intervals<extra></extra>"
    drawn.append(_points([100 * ode.PAPER_TIME], [100 * ode.PAPER_RUNS], "paper", star, told))
    figure = _chart("time inside an encounter (%)", "runs with one (%)", drawn)
    figure.update_xaxes(range=[0, 15])
    return figure.update_yaxes(range=[0, 105])


def begun(record: ode.AdaptiveSteps) -> Any:
    """Return which steps are not the start's."""
    first, last = record.times[0], record.times[-1]
    return record.times >= first + (last - first) / BEGUN


def thinned(many: int, most: int = POINTS) -> Any:
    """Return up to `most` positions of `many`, evenly spread, with both ends.

    >>> thinned(4), len(thinned(20_000)), thinned(20_000)[-1]
    (array([0, 1, 2, 3]), 3000, np.int64(19999))
    """
    return np.linspace(0, many - 1, min(many, most)).round().astype(np.int64)


def _chart(
    x_title: str,
    y_title: str,
    traces: Sequence[go.Scatter],
    *,
    time: ode.Floats | None = None,
    x: str = "linear",
    y: str = "linear",
) -> go.Figure:
    """Return a chart; time is logarithmic where most steps are in its first thousandth.

    A logarithmic axis of several decades has its ticks at whole ones, and not too many.
    """
    layout = canvas(height=400, x=x_title, y=y_title)
    if time is not None and np.median(time) - time[0] < (time[-1] - time[0]) / 1000:
        x = "log"
    for axis, kind in (("x", x), ("y", y)):
        own = layout[f"{axis}axis"]
        own |= {"type": kind, "exponentformat": "power", "nticks": 7}
        values = [v for trace in traces for v in map(finite, trace[axis]) if v and v > 0]
        covered = math.log10(max(values) / min(values)) if values else 0.0
        if kind == "log" and covered > 1.5:
            own["dtick"] = math.ceil(covered / 8)
    layout["hovermode"] = "closest"
    layout["showlegend"] = True
    return go.Figure(traces, layout=layout)


def _told(x: Any, y: Any, name: str, series: int, where: str, told: str, **look: Any) -> go.Scatter:
    """Return a line that tells at every point where it is, and a value."""
    shown = [finite(value) for value in y]
    said = f"<b>{where}</b><br>{told}<extra></extra>"
    colour = LIGHT[f"series{series % SERIES}"]
    return line(x, shown, name, colour, hovertemplate=said, connectgaps=False, **look)


def _points(x: Any, y: Any, name: str, marker: dict[str, Any], told: str) -> go.Scatter:
    return go.Scatter(x=x, y=y, name=name, mode="markers", marker=marker, hovertemplate=told)


def _mark(
    figure: go.Figure,
    text: str,
    *,
    x: float | None = None,
    y: float | None = None,
    right: bool = False,
) -> None:
    """Draw a dotted line across the chart, with a few words at its end."""
    look = {"color": LIGHT["muted"], "width": 1.4, "dash": "dot"}
    logs = {axis: figure.layout[f"{axis}axis"].type == "log" for axis in "xy"}
    words = {"text": text, "showarrow": False, "font": {"color": LIGHT["muted"], "size": 12}}
    if x is not None:
        figure.add_shape(type="line", x0=x, x1=x, y0=0, y1=1, yref="paper", line=look)
        at = np.log10(x) if logs["x"] else x
        place = {"x": at, "y": 1, "yref": "paper", "xanchor": "right", "yanchor": "top"}
    else:
        assert y is not None, "a mark is at an x or at a y"
        figure.add_shape(type="line", x0=0, x1=1, xref="paper", y0=y, y1=y, line=look)
        at = np.log10(y) if logs["y"] else y
        side = {"x": 0.99, "xanchor": "right"} if right else {"x": 0.01, "xanchor": "left"}
        place = {"xref": "paper", "y": at, "yanchor": "bottom", **side}
    if text:
        figure.add_annotation(**words, **place)
