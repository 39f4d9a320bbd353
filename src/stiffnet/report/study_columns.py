"""Studies that show several values of each row: their tables, and their charts along the rows."""

from collections.abc import Iterator, Sequence

import numpy as np
import plotly.graph_objects as go

from stiffnet.report import blocks, cells
from stiffnet.report.spectra_plots import disc_figure
from stiffnet.report.step_axis import line, marker_size, step_layout
from stiffnet.report.text import MISSING, clean, count, finite, fixed, plot_text
from stiffnet.report.theme import LIGHT, SERIES
from stiffnet.results.study import Line, Shown, StudyReport

SMALL = 0.05  # a p-value


def column_sheets(report: StudyReport) -> list[tuple[str, blocks.Table]]:
    """Tables of a row each a row and a column each a value, what was published before it."""
    groups = dict.fromkeys(line.group for line in report.lines)
    sheets = dict.fromkeys(column.sheet for column in report.columns)
    found = []
    for group in groups:
        for sheet in sheets:
            words = [sheet, *([group] if len(groups) > 1 else [])]
            title = clean(", ".join(word for word in words if word))
            own = [column for column in report.columns if column.sheet == sheet]
            found.append((title, _sheet(report, group, title, own)))
    return found


def profile_figures(report: StudyReport) -> Iterator[tuple[str, go.Figure]]:
    """Yield a chart of each figure of a sheet along the rows: every way, and what was published."""
    several = len({each.group for each in report.lines}) > 1
    assert report.picture is not None
    start, sheet = report.picture["x"], report.picture["y"]
    columns = [column for column in report.columns if column.sheet == sheet and column.how]
    for figure in dict.fromkeys(column.figure for column in columns):
        own = [column for column in columns if column.figure == figure]
        for group in dict.fromkeys(each.group for each in report.lines):
            rows = [(r, lines) for g, r, lines in report.rows if g == group and r.startswith(start)]
            name = f"{figure}, {group}" if several else figure
            drawn = _profile(group, rows, own, figure)
            short = [plot_text(row.removeprefix(start), longest=18) for row, _ in rows]
            drawn.update_xaxes(
                ticktext=short, tickangle=0, title_text=plot_text(report.picture["x_title"])
            )
            yield clean(name, longest=80), drawn


def plane_figures(report: StudyReport) -> Iterator[tuple[str, go.Figure]]:
    """Yield the eigenvalues of the first row for the first seed, for each way of computing them."""
    assert report.picture is not None
    for way in dict.fromkeys(column.how for column in report.columns if column.how):
        names = [f"{way}_{report.picture[axis]}" for axis in ("x", "y")]
        known = [each for each in report.lines if all(name in each.values for name in names)]
        if known:
            real, imaginary = (np.array(known[0].values[name], dtype=float) for name in names)
            yield clean(way, longest=80), disc_figure(real + 1j * imaginary)


def _sheet(report: StudyReport, group: str, title: str, columns: Sequence[Shown]) -> blocks.Table:
    first = {column.figure: column for column in reversed(columns)}  # says what was published
    heads = [clean(group, longest=60)]
    for column in columns:
        if column is first[column.figure] and column.published:
            heads.append(f"{clean(column.figure)}, published")
        heads.append(clean(column.title))
    made = []
    for other, row, lines in report.rows:
        if other != group:
            continue
        texts, empty = [clean(row, longest=60)], True
        for column in columns:
            values = _values(lines, column.metric)
            empty = empty and not values
            whole = _whole(report, column)
            if column is first[column.figure] and column.published:
                texts.append(_written(_printed(column, group).get(row), whole=whole))
            texts.append(_told(values, _values(lines, column.p), whole=whole))
        if not empty or any(row in _printed(column, group) for column in columns):
            made.append(texts)
    return cells.sheet(title or clean(group), heads, made, name="forms several")


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
        found = [_values(lines, column.metric) for _, lines in rows]
        colour = LIGHT[f"series{i % SERIES}"]
        drawn.add_trace(
            line(
                places, [float(np.mean(each)) if each else None for each in found],
                plot_text(column.how), colour, marker=marker, connectgaps=True,
                hovertemplate="%{fullData.name}: %{y:.3~g}<extra></extra>",
                error_y={
                    "type": "data", "thickness": 1, "color": colour,
                    "array": [float(np.std(each, ddof=1)) if len(each) > 1 else 0.0
                              for each in found],
                },
            )
        )  # fmt: skip
    printed = _printed(columns[0], group)
    if any(row in printed for row in labels):
        drawn.add_scatter(
            x=places, y=[printed.get(row) for row in labels], name="published", mode="markers",
            marker={"size": 10, "symbol": "diamond-open", "color": LIGHT["series2"]},
            hovertemplate="published: %{y:.3~g}<extra></extra>",
        )  # fmt: skip
    return drawn


def _values(lines: Sequence[Line], metric: str) -> list[float]:
    found = [finite(each.values.get(metric)) for each in lines]
    return [value for value in found if value is not None]


def _printed(column: Shown, group: str) -> dict[str, float]:
    return {row: value for title, row, value in column.published if title == group}


def _whole(report: StudyReport, column: Shown) -> bool:
    """Whether all of a column is counts, what was published too."""
    found = [each.values.get(column.metric) for each in report.lines]
    printed = all(float(value).is_integer() for _, _, value in column.published)
    return printed and all(value is None or isinstance(value, int) for value in found)


def _told(values: Sequence[float], p_values: Sequence[float], *, whole: bool) -> str:
    """Write a mean over seeds, its spread, and in how many of them it is clearly not zero."""
    if not values:
        return MISSING
    text = _written(float(np.mean(values)), whole=whole)
    if len(values) > 1 and np.ptp(values) > 0:
        text += f" ± {_written(float(np.std(values, ddof=1)), whole=whole)}"
    if p_values:
        text += f" ({sum(p <= SMALL for p in p_values)}/{len(p_values)})"
    return text


def _written(value: float | None, *, whole: bool) -> str:
    return count(value) if whole else fixed(value, 2)
