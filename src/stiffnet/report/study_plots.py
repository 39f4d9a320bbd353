"""The figures of studies: differences with their intervals, and what else a study declares."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from stiffnet.report.canvas import canvas
from stiffnet.report.gradcam_plots import colour_range, map_figure
from stiffnet.report.spectra_plots import disc_figure
from stiffnet.report.step_axis import line, marker_size, step_layout
from stiffnet.report.surfaces import seen_extent, surface_figure
from stiffnet.report.text import clean, finite, plot_text
from stiffnet.report.theme import LIGHT, SERIES
from stiffnet.results.study import Comparison, Line, Shown, StudyReport
from stiffnet.stiffness.given import Floats

Named = Iterator[tuple[str | None, go.Figure]]
"""Figures, each with what it is called beside the others; None for one that is alone."""
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
        reach = [
            0.0 if each.high is None or each.estimate is None else each.high - each.estimate
            for _, each in known
        ]
        errors = {"type": "data", "array": reach, "color": LIGHT[role], "thickness": 1.6}
        marker = {"size": 10, "color": LIGHT[role]}
        _add_points(figure, known, "estimate", f"measured: {verdict}", "", marker, error_x=errors)
    printed = [(i, each) for i, each in enumerate(made) if finite(each.published) is not None]
    marker = {"size": 11, "symbol": "diamond-open", "color": LIGHT["series0"]}
    _add_points(figure, printed, "published", "published", "published: ", marker)
    return figure


def _add_points(
    figure: go.Figure,
    made: Sequence[tuple[int, Comparison]],
    key: str,
    name: str,
    said: str,
    marker: dict[str, Any],
    **look: Any,
) -> None:
    """Draw a number of each of these comparisons at its place, if there are any."""
    if made:
        figure.add_scatter(
            x=[getattr(each, key) for _, each in made], y=[i for i, _ in made],
            name=name, mode="markers", marker=marker,
            text=[plot_text(each.sentence, longest=90) for _, each in made],
            hovertemplate=f"%{{text}}<br>{said}%{{x:.3~g}}<extra></extra>", **look,
        )  # fmt: skip


def _reach(made: Sequence[Comparison]) -> list[float]:
    """Both ends of all numbers and of zero, which intervals are compared with, and some room."""
    every = [n for each in made for n in (each.estimate, each.low, each.high, each.published)]
    known = [0.0, *(value for value in map(finite, every) if value is not None)]
    room = 0.06 * (max(known) - min(known)) or 1.0
    return [min(known) - room, max(known) + room]


def curves_figure(report: StudyReport) -> Named:
    """A list of values of each row along the steps of the network, averaged over seeds."""
    about = report.picture or {}
    x, y = about["x"], about["y"]
    rows = ((name, [each for each in lines if y in each.values]) for name, lines in _rows(report))
    known = [(name, lines) for name, lines in rows if lines]
    longest: list[str] = max((lines[0].values[x] for _, lines in known), key=len, default=[])
    figure = go.Figure(layout=step_layout(longest, plot_text(about["y_title"])))
    for i, (name, lines) in enumerate(known):
        values, colour = np.array([each.values[y] for each in lines], float), _colour(i)
        errors = None
        if len(values) > 1:
            spread = values.std(axis=0, ddof=1)
            errors = {"type": "data", "array": spread, "thickness": 1, "color": colour}
        figure.add_scatter(
            x=list(range(1, values.shape[1] + 1)), y=values.mean(axis=0),
            name=plot_text(name, longest=48), mode="lines+markers",
            line={"color": colour, "width": 2}, error_y=errors,
            hovertemplate="%{y:.3~g} %{fullData.name}<extra></extra>",
        )  # fmt: skip
    yield None, figure


def points_figure(report: StudyReport) -> Named:
    """Two values of every row against each other: a point a seed."""
    about = report.picture or {}
    titles = {axis: plot_text(about[f"{axis}_title"]) for axis in ("x", "y")}
    figure = go.Figure(layout=canvas(height=440, **titles))
    for i, (row, lines) in enumerate(_rows(report)):
        pairs = [[finite(each.values.get(about[axis])) for axis in ("x", "y")] for each in lines]
        known = [pair for pair in pairs if None not in pair]
        if known:
            symbol = ("circle", "square", "triangle-up")[i // SERIES % 3]
            figure.add_scatter(
                x=[a for a, _ in known], y=[b for _, b in known],
                name=plot_text(row, longest=48), mode="markers",
                marker={"size": 9, "color": _colour(i), "symbol": symbol},
                hovertemplate="%{x:.4~g}, %{y:.4~g} %{fullData.name}<extra></extra>",
            )  # fmt: skip
    yield None, figure


def profile_figures(report: StudyReport) -> Named:
    """Yield a chart of each figure of a sheet along the rows: every way, and what was published."""
    about = report.picture or {}
    columns = [each for each in report.columns if each.sheet == about["y"] and each.how]
    for figure in dict.fromkeys(column.figure for column in columns):
        own = [column for column in columns if column.figure == figure]
        for group in report.groups:
            rows = [
                (row, lines)
                for title, row, lines in report.rows
                if title == group and row.startswith(about["x"])
            ]
            name = f"{figure}, {group}" if len(report.groups) > 1 else figure
            drawn = _profile(group, rows, own, figure)
            short = [plot_text(row.removeprefix(about["x"]), longest=18) for row, _ in rows]
            title = plot_text(about["x_title"])
            drawn.update_xaxes(ticktext=short, tickangle=0, title_text=title)
            yield clean(name, longest=80), drawn


def _profile(
    group: str, rows: Sequence[tuple[str, Sequence[Line]]], columns: Sequence[Shown], figure: str
) -> go.Figure:
    labels = [row for row, _ in rows]
    places = list(range(1, len(rows) + 1))
    layout = step_layout(labels, plot_text(figure))
    layout["yaxis"] |= {"zeroline": True, "zerolinecolor": LIGHT["axis"]}
    drawn = go.Figure(layout=layout)
    marker = {"size": marker_size(labels)}
    for i, column in enumerate(columns):
        found = [numbers_of(lines, column.metric) for _, lines in rows]
        means = [float(np.mean(each)) if each else None for each in found]
        spreads = [float(np.std(each, ddof=1)) if len(each) > 1 else 0.0 for each in found]
        errors = {"type": "data", "thickness": 1, "color": _colour(i), "array": spreads}
        drawn.add_trace(
            line(places, means, plot_text(column.how), _colour(i), marker=marker,
                 connectgaps=True, error_y=errors,
                 hovertemplate="%{fullData.name}: %{y:.3~g}<extra></extra>")
        )  # fmt: skip
    printed = columns[0].printed(group)
    if any(row in printed for row in labels):
        drawn.add_scatter(
            x=places, y=[printed.get(row) for row in labels], name="published", mode="markers",
            marker={"size": 10, "symbol": "diamond-open", "color": LIGHT["series2"]},
            hovertemplate="published: %{y:.3~g}<extra></extra>",
        )  # fmt: skip
    return drawn


def plane_figures(report: StudyReport) -> Named:
    """Yield the eigenvalues of the first row for the first seed, for each way of computing them."""
    about = report.picture or {}
    for way in dict.fromkeys(column.how for column in report.columns if column.how):
        names = [f"{way}_{about[axis]}" for axis in ("x", "y")]
        known = [each for each in report.lines if all(name in each.values for name in names)]
        if known:
            real, imaginary = (np.array(known[0].values[name], dtype=float) for name in names)
            yield clean(way, longest=80), disc_figure(real + 1j * imaginary)


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
    about = report.picture or {}
    found: dict[tuple[str, str], list[Floats]] = {}
    for each in report.lines:
        read = _as_map(each.values.get(about["y"]))
        if read is not None:
            found.setdefault((each.group, each.row), []).append(read)
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
    several = len(report.groups) > 1
    return [(f"{group}: {row}" if several else row, lines) for group, row, lines in report.rows]


def numbers_of(lines: Sequence[Line], metric: str) -> list[float]:
    """Return the finite numbers of a metric, seed by seed."""
    found = [finite(each.values.get(metric)) for each in lines]
    return [value for value in found if value is not None]


def _colour(series: int) -> str:
    return LIGHT[f"series{series % SERIES}"]
