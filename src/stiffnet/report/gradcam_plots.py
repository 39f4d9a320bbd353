"""Mean maps as heat maps over the image, with the central square and the centre of mass."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from stiffnet.report.canvas import colour_bar, grid, heat_layout
from stiffnet.report.text import finite
from stiffnet.report.theme import LIGHT, SCALE
from stiffnet.stiffness.given import Floats


def density(mean: Floats) -> Floats:
    """Return a map over its own mean, so that 1 is an even one; NaN where there is no map."""
    return mean / mean.mean() if np.isfinite(mean).all() else np.full_like(mean, np.nan)


def colour_range(maps: Sequence[Floats]) -> tuple[float, float]:
    """Return the least and the largest density of several maps, which one scale shows."""
    known = [density(each) for each in maps if np.isfinite(each).all()]
    if not known:
        return 0.0, 1.0
    return min(float(each.min()) for each in known), max(float(each.max()) for each in known)


def map_figure(
    mean: Floats,
    middle: tuple[float, float],
    ends: tuple[float, float],
    *,
    square: float = 0.25,
    small: bool = False,
) -> go.Figure:
    """Draw a mean map on the unit square of the image, y downward.

    Args:
        mean: (rows, columns).
        middle: The centre of mass, to the right and below the centre of the image.
        ends: Densities that the colours range between.
        square: Where the left side of the central square is drawn.
        small: Without axes and the bar of colours.
    """
    height, width = mean.shape
    layout = heat_layout(180 if small else 320, range=[0, 1], constrain="domain")
    layout["yaxis"] |= {"range": [1, 0], "scaleanchor": "x"}
    if small:
        layout["margin"] = {"l": 4, "r": 4, "t": 4, "b": 4}
    for axis in ("xaxis", "yaxis"):
        layout[axis] |= {"showticklabels": not small, "ticks": "" if small else "outside"}
        layout[axis] |= {"tickvals": [0, 0.25, 0.5, 0.75, 1], "showline": False}
    heat = go.Heatmap(
        x=[(i + 0.5) / width for i in range(width)],
        y=[(i + 0.5) / height for i in range(height)],
        z=grid(density(mean)),
        zmin=ends[0],
        zmax=ends[1],
        colorscale=SCALE,
        showscale=not small,
        colorbar=colour_bar(),
        hovertemplate="density <b>%{z:.3f}</b><extra></extra>",
    )
    figure = go.Figure(heat, layout=layout)
    figure.add_shape(
        type="rect", x0=square, x1=square + 0.5, y0=0.25, y1=0.75,
        line={"color": LIGHT["ink"], "width": 1.5, "dash": "dot"},
    )  # fmt: skip
    x, y = (finite(each) for each in middle)
    if x is not None and y is not None:
        edge = {"width": 2.5, "color": LIGHT["series1"]}
        figure.add_scatter(
            x=[0.5 + x],
            y=[0.5 + y],
            mode="markers",
            marker={"symbol": "cross-thin", "size": 12, "line": edge},
            hovertemplate="centre of mass<extra></extra>",
            showlegend=False,
        )
    return figure
