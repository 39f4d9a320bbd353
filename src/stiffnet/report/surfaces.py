"""δ and p̂ over both thresholds, as heat maps with contour lines."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from stiffnet.report.canvas import colour_bar, grid, heat_layout
from stiffnet.report.stiffness_findings import at_thresholds
from stiffnet.report.text import count, finite, percent
from stiffnet.report.theme import LIGHT, SCALE
from stiffnet.results.view import StiffnessView
from stiffnet.stiffness.given import Floats


def delta_figure(view: StiffnessView, extent: tuple[float, float]) -> go.Figure:
    """δ(M₁, M₂): the share of inputs with a step above both, which end at `extent`."""
    figure = surface_figure(view.m1, view.m2, view.delta, 1.0, f"of {view.noun}", extent)
    share = at_thresholds(view, view.delta, 1.0, 0.0)
    if share is not None:
        edge = {"color": LIGHT["ink"], "width": 2}
        figure.add_scatter(
            x=[1.0],
            y=[0.0],
            mode="markers+text",
            text=[f"twice the mean: {percent(share)}"],
            textposition="top right",
            textfont={"color": LIGHT["ink"], "size": 12},
            marker={"color": LIGHT["paper"], "size": 10, "line": edge},
            cliponaxis=False,
            hoverinfo="skip",
            showlegend=False,
        )
    return figure


def proportion_figure(view: StiffnessView, extent: tuple[float, float], top: float) -> go.Figure:
    """p̂(M₁, M₂): the mean share of an input's steps above both; the colours end at `top`."""
    return surface_figure(view.m1, view.m2, view.proportion, top, "of steps", extent)


def proportion_top(views: Sequence[StiffnessView]) -> float:
    """Return the end of a colour scale that holds the proportion of every view."""
    largest = max(
        (finite(np.nanmax(v.proportion)) or 0.0) if v.proportion.size else 0 for v in views
    )
    return next((top for top in (0.1, 0.2, 0.3, 0.5) if largest <= top), 1.0)


def surface_extent(views: Sequence[StiffnessView]) -> tuple[float, float]:
    """Return where M₁ and M₂ may end so that no view loses anything but empty space."""
    ends = [seen_extent(view.m1, view.m2, view.delta) for view in views]
    return max(end[0] for end in ends), max(end[1] for end in ends)


def caption_samples(view: StiffnessView) -> str:
    """Say over which inputs the surfaces and the curves are."""
    if view.kept == view.samples:
        return f"Over all {count(view.samples)} {view.noun}."
    return (
        f"Over the {count(view.kept)} of {count(view.samples)} {view.noun} whose values were kept."
    )


def seen_extent(m1: Floats, m2: Floats, delta: Floats) -> tuple[float, float]:
    """Return where δ is below one in fifty: beyond it there is nothing to see."""
    seen = np.nan_to_num(delta) >= 0.02
    ends = []
    for grid_of, axis in ((m1, 1), (m2, 0)):
        last = np.flatnonzero(seen.any(axis=axis))[-1:]
        ends.append(float(grid_of[min(int(last[0]) + 1, len(grid_of) - 1) if last.size else -1]))
    return ends[0], ends[1]


def surface_figure(
    m1: Floats, m2: Floats, surface: Floats, top: float, what: str, extent: tuple[float, float]
) -> go.Figure:
    """Draw shares over both thresholds, which end at `extent`; the colours end at `top`."""
    x, y = m1.tolist(), m2.tolist()
    z = grid(surface.T)  # a row for each M₂
    text = [[percent(value) for value in line] for line in z]
    ticks = [top * k / 5 for k in range(6)]
    layout = heat_layout(400, x="M₁", y="M₂")
    layout["plot_bgcolor"] = LIGHT["scale0"]  # beyond a view's own grid both surfaces are zero
    for axis, end in zip(("xaxis", "yaxis"), extent, strict=True):
        layout[axis]["range"] = [0, end or 1]
    return go.Figure(
        go.Contour(
            x=x,
            y=y,
            z=z,
            zmin=0,
            zmax=top,
            zauto=False,
            text=text,
            colorscale=SCALE,
            contours={
                "coloring": "heatmap",
                "start": top / 10,
                "end": top * 0.9,
                "size": top / 5,
                "showlabels": True,
                "labelfont": {"size": 11, "color": LIGHT["ink"]},
                "labelformat": ".0%" if top >= 0.5 else ".1%",
            },
            line={"color": LIGHT["contour"], "width": 0.8},
            colorbar=colour_bar(tickvals=ticks, ticktext=[f"{100 * tick:g} %" for tick in ticks]),
            hovertemplate="M₁ = %{x:.3~g}, M₂ = %{y:.3~g}<br><b>%{text}</b> "
            f"{what}<extra></extra>",
        ),
        layout=layout,
    )
