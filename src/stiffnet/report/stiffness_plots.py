"""The figures of a report, as functions of views; plotly draws them in a notebook too.

Every user string passes through `plot_text`, because plotly reads markup in labels. Lists, never
arrays, go into a figure, so that its JSON is plain numbers.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import plotly.graph_objects as go

from stiffnet.report.step_axis import line, marker_size, spread_band, step_layout
from stiffnet.report.stiffness_findings import all_counted, increment_differs
from stiffnet.report.text import finite, number, plot_text, rows, shape
from stiffnet.report.theme import LIGHT, SERIES
from stiffnet.results.view import Curve, StiffnessView

_EDGE = 0.4  # how far a band reaches beyond the first and last step of its stage
_LOG_FROM = 50.0  # medians that differ by more than this factor are drawn on a logarithmic axis
_BANDS = {"most": ("nsi_q05", "nsi_q95"), "half": ("nsi_q25", "nsi_q75")}
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


def share_steps(views: Sequence[StiffnessView]) -> bool:
    """Say whether all views have the same steps in the same stages: then they share an axis."""
    first = views[0].steps
    return all(
        list(view.steps["step"]) == list(first["step"])
        and list(view.steps["stage"]) == list(first["stage"])
        for view in views
    )


def nsi_figure(views: Sequence[StiffnessView]) -> go.Figure:
    """NSI by step of networks with the same steps: median, middle half and 90 % of the inputs."""
    figure = go.Figure(layout=_steps_layout(views[0]))
    alone = len(views) == 1
    for i, view in enumerate(views):
        figure.add_traces([_band(view, role, i, alone=alone) for role in _BANDS])
    for i, view in enumerate(views):
        _add_medians(figure, view, i, alone=alone)
        if increment_differs(view):
            _add_increment(figure, view, i, alone=alone)
    if not all_counted(views):
        edge = {"color": LIGHT["muted"], "width": 1.5}
        figure.add_scatter(
            x=[None], y=[None], mode="markers", name="not counted in TNS", hoverinfo="skip",
            marker={"size": 7, "color": LIGHT["paper"], "line": edge},
        )  # fmt: skip
    figure.update_yaxes(type=_axis_type(views))
    return figure


def extremes_figure(view: StiffnessView) -> go.Figure:
    """NSI against depth for the stiffest and the calmest inputs, with the median of all."""
    figure = go.Figure(layout=_steps_layout(view))
    for curves, name, series in ((view.calmest, "calmest", 5), (view.stiffest, "stiffest", 4)):
        for i, curve in enumerate(curves):
            figure.add_trace(_curve(view, curve, name, series, first=i == 0))
    median = _broken(view, list(view.steps["nsi_median"]))
    point, ink = {"size": 3}, LIGHT["ink"]
    figure.add_trace(line(*median, "median of all", ink, width=1.5, dash="dot", marker=point))
    figure.update_layout(hovermode="closest")
    figure.update_yaxes(type=_axis_type([view]))
    return figure


def _stage_runs(view: StiffnessView) -> Iterator[tuple[Any, list[int]]]:
    """Yield each stage and the positions of its steps, in execution order."""
    stages = list(view.steps["stage"])
    for stage, positions in groupby(range(len(stages)), key=lambda i: stages[i]):
        yield stage, list(positions)


def _steps_layout(view: StiffnessView) -> dict[str, Any]:
    steps = rows(view.steps)
    bands, shapes, annotations = [], [], []
    for order, (stage, positions) in enumerate(_stage_runs(view)):
        left, right = positions[0] + 0.5, positions[-1] + 1.5
        short = f"stage {plot_text(stage, longest=12)}"
        long = f"{short} · {plot_text(shape(steps[positions[0]]['shape']))}"
        bands.append({"left": left, "right": right, "long": long, "short": short})
        if order % 2 == 0:
            shapes.append({
                "type": "rect", "xref": "x", "x0": left, "x1": right, "layer": "below",
                "yref": "paper", "y0": 0, "y1": 1,
                "fillcolor": LIGHT["band"], "line": {"width": 0},
            })  # fmt: skip
        annotations.append({
            "x": (left + right) / 2, "xref": "x", "y": 1, "yref": "paper", "text": long,
            "yanchor": "bottom", "showarrow": False, "font": {"size": 12, "color": LIGHT["muted"]},
        })  # fmt: skip
    layout = step_layout([row["step"] for row in steps], "NSI", height=440)
    layout["margin"] |= {"t": 62}  # above the chart the stages are named
    return layout | {"shapes": shapes, "annotations": annotations, "meta": {"bands": bands}}


def _broken(view: StiffnessView, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return x and y of a line that is interrupted where the stage changes."""
    x: list[Any] = []
    y: list[Any] = []
    for _, positions in _stage_runs(view):
        x += [position + 1 for position in positions] + [None]
        y += [finite(values[position]) for position in positions] + [None]
    return x[:-1], y[:-1]


def _band(view: StiffnessView, role: str, order: int, *, alone: bool) -> go.Scatter:
    """Return a band from a lower to an upper quantile in each stage; a lone step gets one too."""
    low, high = ([finite(value) for value in view.steps[end]] for end in _BANDS[role])
    runs: list[list[tuple[float, Any, Any]]] = []
    for _, positions in _stage_runs(view):
        known = [(i + 1, low[i], high[i]) for i in positions if None not in (low[i], high[i])]
        if known:
            first, last = known[0], known[-1]
            runs.append([(first[0] - _EDGE, *first[1:]), *known, (last[0] + _EDGE, *last[1:])])
    name = "middle half" if role == "half" else f"90 % of {view.noun}"
    return spread_band(
        runs,
        name if alone else f"{name}, {plot_text(view.title, longest=40)}",
        role,
        order % SERIES,
        visible=True if alone or role == "half" else "legendonly",
        showlegend=alone or role == "most",
    )


def _add_medians(figure: go.Figure, view: StiffnessView, order: int, *, alone: bool) -> None:
    steps = rows(view.steps)
    colour = LIGHT[f"series{order % SERIES}"]
    x, y = _broken(view, [row["nsi_median"] for row in steps])
    shown = [None if position is None else steps[position - 1] for position in x]
    filled = [colour if row is None or row["counted"] else LIGHT["paper"] for row in shown]
    edge = {"color": colour, "width": 1.5}
    title = plot_text(view.title, longest=60)
    above = title.replace("%{", "%&#123;") + "<br>"  # in a template, `%{…}` would be looked up
    figure.add_trace(
        line(
            x,
            y,
            "median" if alone else title,
            colour,
            dash=_DASHES[order // SERIES % len(_DASHES)],
            marker={"size": marker_size(steps), "color": filled, "line": edge},
            customdata=[[*_hover(row), view.noun] if row else [] for row in shown],
            hovertemplate=_HOVER if alone else above + _HOVER,
        )
    )


_HOVER = (
    "<b>%{customdata[0]}</b><br>%{customdata[1]}<br>"
    "NSI median %{customdata[2]}, mean %{customdata[3]} (sd %{customdata[4]})<br>"
    "middle half %{customdata[5]}<br>90 % of %{customdata[9]} %{customdata[6]}<br>"
    "increment %{customdata[7]}%{customdata[8]}<extra></extra>"
)


def _hover(row: dict[str, Any]) -> list[str]:
    return [
        plot_text(row["step"]),
        f"stage {plot_text(row['stage'], longest=12)} · state {plot_text(shape(row['shape']))}",
        number(row["nsi_median"]),
        number(row["nsi_mean"]),
        number(row["nsi_std"]),
        f"{number(row['nsi_q25'])} to {number(row['nsi_q75'])}",
        f"{number(row['nsi_q05'])} to {number(row['nsi_q95'])}",
        number(row["increment_mean"]),
        "" if row["counted"] else "<br>not counted in TNS",
    ]


def _add_increment(figure: go.Figure, view: StiffnessView, order: int, *, alone: bool) -> None:
    colour = LIGHT["series1"] if alone else LIGHT[f"series{order % SERIES}"]
    name = "increment (mean)" if alone else f"increment, {plot_text(view.title, longest=40)}"
    values = _broken(view, list(view.steps["increment_mean"]))
    shown = True if alone else "legendonly"
    figure.add_trace(line(*values, name, colour, width=1.3, dash="dot", visible=shown))


def _curve(view: StiffnessView, curve: Curve, name: str, series: int, *, first: bool) -> go.Scatter:
    x, y = _broken(view, list(curve.nsi))
    names = [plot_text(step) for step in view.steps["step"]]
    return line(
        x, y, f"{name} inputs", LIGHT[f"series{series}"],
        width=1.4, marker={"size": 3},  # a stage of one step has no line
        legendgroup=name, showlegend=first, opacity=0.85,
        customdata=[[names[p - 1], number(v)] if p else [] for p, v in zip(x, y, strict=True)],
        meta=[plot_text(curve.label, longest=60), number(curve.tns)],
        hovertemplate="<b>%{meta[0]}</b> (TNS %{meta[1]})<br>"
        "%{customdata[0]}: NSI %{customdata[1]}<extra></extra>",
    )  # fmt: skip


def _axis_type(views: Sequence[StiffnessView]) -> str:
    medians = [finite(m) or 0.0 for view in views for m in view.steps["nsi_median"]]
    positive = [median for median in medians if median > 0]
    wide = bool(positive) and max(positive) > _LOG_FROM * min(positive)
    return "log" if wide and len(positive) == len(medians) else "linear"
