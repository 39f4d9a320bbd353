"""The figures of studies: differences with their intervals, curves, points, surfaces, maps."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from stiffnet.report.canvas import canvas
from stiffnet.report.gradcam_plots import colour_range, map_figure
from stiffnet.report.step_axis import step_layout
from stiffnet.report.surfaces import seen_extent, surface_figure
from stiffnet.report.text import clean, finite, plot_text
from stiffnet.report.theme import LIGHT, SERIES
from stiffnet.results.study import Comparison, Line, StudyReport
from stiffnet.stiffness.given import Floats

_ROW = 44  # pixels of one comparison, with its words above it
_UNIT = 24  # characters that fit below an axis
VERDICTS = {"held": "series2", "refuted": "series1", "undecided": "muted"}


def differences_figure(made: Sequence[Comparison], unit: str) -> go.Figure:
    """Mean differences of comparisons with their 95 % intervals, and what was published."""
    # The table above has a unit that is too long for a phone.
    title = f"difference ({plot_text(unit)})" if len(unit) <= _UNIT else "difference"
    compared = [each.sentence.partition(": ")[2] or each.sentence for each in made]
    layout = canvas(height=110 + _ROW * len(made), x=title)
    layout["yaxis"] |= {
        "showgrid": False,
        "tickmode": "array",
        "tickvals": list(range(len(made))),
        "ticktext": [plot_text(each, longest=52) for each in compared],
        "showticklabels": False,  # beside the axis they would leave a phone no room to draw
        "ticks": "",
        "showline": False,
        "range": [len(made) - 0.5, -0.8],
    }
    layout["xaxis"] |= {"zeroline": True, "zerolinecolor": LIGHT["axis"], "zerolinewidth": 1.5}
    layout["xaxis"]["range"] = _reach(made)
    layout["annotations"] = [
        {
            "text": text, "x": 0, "xref": "paper", "xanchor": "left", "y": i, "yanchor": "bottom",
            "yshift": 6, "showarrow": False, "bgcolor": LIGHT["paper"], "borderpad": 0,
            "font": layout["yaxis"]["tickfont"],
        }
        for i, text in enumerate(layout["yaxis"]["ticktext"])
    ]  # fmt: skip
    layout["showlegend"] = True  # also of one verdict: its colour says which
    layout["margin"] |= {"t": 48}
    layout["legend"] |= {"y": 1.0}
    figure = go.Figure(layout=layout)
    for verdict, role in VERDICTS.items():
        known = [(i, each) for i, each in enumerate(made) if each.verdict == verdict]
        if not known:
            continue
        reach = [
            0.0 if each.high is None or each.estimate is None else each.high - each.estimate
            for _, each in known
        ]
        figure.add_scatter(
            x=[each.estimate for _, each in known],
            y=[i for i, _ in known],
            name=f"measured: {verdict}",
            mode="markers",
            marker={"size": 10, "color": LIGHT[role]},
            error_x={"type": "data", "array": reach, "color": LIGHT[role], "thickness": 1.6},
            text=[plot_text(each.sentence, longest=90) for _, each in known],
            hovertemplate="%{text}<br>%{x:.3~g}<extra></extra>",
        )
    printed = [(i, each) for i, each in enumerate(made) if finite(each.published) is not None]
    if printed:
        figure.add_scatter(
            x=[each.published for _, each in printed],
            y=[i for i, _ in printed],
            name="published",
            mode="markers",
            marker={"size": 11, "symbol": "diamond-open", "color": LIGHT["series0"]},
            text=[plot_text(each.sentence, longest=90) for _, each in printed],
            hovertemplate="%{text}<br>published: %{x:.3~g}<extra></extra>",
        )
    return figure


def _reach(made: Sequence[Comparison]) -> list[float]:
    """Both ends of all numbers and of zero, which intervals are compared with, and some room."""
    every = [n for each in made for n in (each.estimate, each.low, each.high, each.published)]
    known = [0.0, *(value for value in map(finite, every) if value is not None)]
    room = 0.06 * (max(known) - min(known)) or 1.0
    return [min(known) - room, max(known) + room]


def curves_figure(report: StudyReport) -> go.Figure:
    """A list of values of each row along the steps of the network, averaged over seeds."""
    assert report.picture is not None
    x, y = report.picture["x"], report.picture["y"]
    rows = ((name, [line for line in lines if y in line.values]) for name, lines in _rows(report))
    known = [(name, lines) for name, lines in rows if lines]
    longest: list[str] = max((lines[0].values[x] for _, lines in known), key=len, default=[])
    figure = go.Figure(layout=step_layout(longest, plot_text(report.picture["y_title"])))
    for i, (name, lines) in enumerate(known):
        values = np.array([line.values[y] for line in lines], dtype=float)
        mean = values.mean(axis=0)
        spread = values.std(axis=0, ddof=1) if len(values) > 1 else None
        figure.add_scatter(
            x=list(range(1, len(mean) + 1)),
            y=mean,
            name=plot_text(name, longest=48),
            mode="lines+markers",
            line={"color": LIGHT[f"series{i % SERIES}"], "width": 2},
            error_y=None
            if spread is None
            else {"type": "data", "array": spread, "thickness": 1,
                  "color": LIGHT[f"series{i % SERIES}"]},
            hovertemplate="%{y:.3~g} %{fullData.name}<extra></extra>",
        )  # fmt: skip
    return figure


def points_figure(report: StudyReport) -> go.Figure:
    """Two values of every row against each other: a point a seed."""
    assert report.picture is not None
    x, y = report.picture["x"], report.picture["y"]
    titles = {axis: plot_text(report.picture[f"{axis}_title"]) for axis in ("x", "y")}
    figure = go.Figure(layout=canvas(height=440, **titles))
    for i, (row, lines) in enumerate(_rows(report)):
        pairs = [[finite(line.values.get(axis)) for axis in (x, y)] for line in lines]
        known = [pair for pair in pairs if None not in pair]
        if not known:
            continue
        name = plot_text(row, longest=48)
        colour = LIGHT[f"series{i % SERIES}"]
        symbol = ("circle", "square", "triangle-up")[i // SERIES % 3]
        figure.add_scatter(
            x=[a for a, _ in known], y=[b for _, b in known], name=name, mode="markers",
            marker={"size": 9, "color": colour, "symbol": symbol},
            hovertemplate="%{x:.4~g}, %{y:.4~g} %{fullData.name}<extra></extra>",
        )  # fmt: skip
    return figure


def surface_figures(report: StudyReport) -> list[tuple[str, go.Figure]]:
    """δ of each row, averaged over seeds, all with the same axes; with what each is called."""
    found = []
    for name, lines in _rows(report):
        known = [line.values for line in lines if "delta" in line.values]
        if known:
            m1, m2 = (np.array(known[0][axis], dtype=float) for axis in ("m1", "m2"))
            mean = np.array([values["delta"] for values in known], dtype=float).mean(axis=0)
            found.append((name, m1, m2, mean))
    ends = [seen_extent(m1, m2, mean) for _, m1, m2, mean in found]
    extent = max((a for a, _ in ends), default=1.0), max((b for _, b in ends), default=1.0)
    return [
        (plot_text(name, longest=80), surface_figure(m1, m2, mean, 1.0, "of images", extent))
        for name, m1, m2, mean in found
    ]


def map_figures(report: StudyReport) -> list[tuple[str, go.Figure]]:
    """Return the mean map of each row over its seeds, in one scale; what is no map is left out."""
    about = report.picture
    assert about is not None
    found: dict[tuple[str, str], list[Floats]] = {}
    for line in report.lines:
        read = _as_map(line.values.get(about["y"]))
        if read is not None:
            found.setdefault((line.group, line.row), []).append(read)
    alike = {key: maps for key, maps in found.items() if len({each.shape for each in maps}) == 1}
    means = {key: np.mean(maps, axis=0) for key, maps in alike.items()}
    ends = colour_range(list(means.values()))
    several = len({group for group, _ in means}) > 1
    nowhere = (np.nan, np.nan)  # the centre of mass is in no column
    return [
        (
            clean(f"{row}, {group}" if several else row, longest=80),
            map_figure(mean, nowhere, ends),
        )
        for (group, row), mean in means.items()
    ]


def _as_map(value: Any) -> Floats | None:
    """Return rows of numbers as an array; nothing where they are something else."""
    if not isinstance(value, list | tuple) or not all(isinstance(v, list | tuple) for v in value):
        return None
    numbers = [[finite(each) for each in line] for line in value]
    if len({len(line) for line in numbers}) != 1 or any(None in line for line in numbers):
        return None
    found: Floats = np.array(numbers, dtype=np.float64)
    return found if found.size and found.any() else None


def _rows(report: StudyReport) -> list[tuple[str, list[Line]]]:
    """Name each row, with its group where there are several, and return it with its lines."""
    several = len({line.group for line in report.lines}) > 1
    return [(f"{group}: {row}" if several else row, lines) for group, row, lines in report.rows]
