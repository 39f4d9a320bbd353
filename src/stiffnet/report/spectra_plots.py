"""The figures on spectra; plotly draws them in a notebook too."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from stiffnet.report.canvas import canvas
from stiffnet.report.step_axis import add_spread, step_layout
from stiffnet.report.text import finite, number, percent
from stiffnet.report.theme import LIGHT
from stiffnet.results.spectra import SpectrumReport
from stiffnet.results.spectrum import Complexes, Spectrum

POINTS = 3_000  # eigenvalues in one panel; of more, a choice
_BINS = 60
_RIM = 96  # corners of the disc
_MARGIN = 1.08


def plane_figure(spectra: Sequence[Spectrum]) -> go.Figure:
    """Eigenvalues of a step on all images, in the complex plane with Euler's disc."""
    return disc_figure(thinned(joined(spectra)))


def disc_figure(values: Complexes) -> go.Figure:
    """Eigenvalues in the complex plane, with the disc in which forward Euler is stable."""
    layout = canvas(height=420, x="real part", y="imaginary part")
    layout["margin"] |= {"t": 48}
    low, high, up = _reach(values)
    for axis in ("xaxis", "yaxis"):
        layout[axis] |= {"zeroline": True, "zerolinecolor": LIGHT["axis"], "zerolinewidth": 1}
    layout["xaxis"] |= {"range": [low, high], "constrain": "domain"}
    layout["yaxis"] |= {"range": [-up, up], "scaleanchor": "x", "constrain": "domain"}
    angles = np.linspace(0, 2 * np.pi, _RIM + 1)
    disc = go.Scatter(
        x=np.cos(angles) - 1, y=np.sin(angles), name="Euler's disc |1 + λ| ≤ 1", mode="lines",
        line={"color": LIGHT["series2"], "width": 1.4}, fill="toself",
        fillcolor=LIGHT["most2"], hoverinfo="skip",
    )  # fmt: skip
    inside = np.abs(1 + values) <= 1 + 1e-9
    figure = go.Figure(disc, layout=layout)
    for name, chosen, series in (
        ("inside", values[inside], 0),
        ("outside", values[~inside], 1),
    ):
        figure.add_scatter(
            x=chosen.real, y=chosen.imag, name=name, mode="markers",
            marker={"size": 4.5, "symbol": "circle", "color": LIGHT[f"series{series}"],
                    "opacity": 0.55},
            hovertemplate="λ = %{x:.4~g} + %{y:.4~g} i<extra></extra>",
        )  # fmt: skip
    return figure


def real_parts_figure(spectra: Sequence[Spectrum]) -> go.Figure:
    """How many of the eigenvalues other than zero have which real part."""
    values = joined(spectra)
    real = values[values != 0].real
    layout = canvas(height=420, x="real part", y="eigenvalues an image")
    layout["margin"] |= {"t": 48}
    layout["yaxis"] |= {"type": "log", "dtick": 1}
    layout["bargap"] = 0.06
    figure = go.Figure(layout=layout)
    if not len(real):
        return figure
    low, high = float(real.min()), float(real.max())
    width = (high - low) / _BINS or abs(low) or 1.0
    # Zero is an edge, so that no bar holds both signs.
    edges = width * np.arange(np.floor(low / width), np.floor(high / width) + 2)
    edges[np.abs(edges) < width / 2] = 0.0
    counts, edges = np.histogram(real, edges)
    middles = (edges[:-1] + edges[1:]) / 2
    for name, side, series in (("negative", middles < 0, 0), ("positive", middles > 0, 1)):
        shown = [each or None for each in counts[side] / len(spectra)]  # no bar for none
        figure.add_bar(
            x=middles[side], y=shown, name=name,
            width=width * 0.94, marker={"color": LIGHT[f"series{series}"]},
            hovertemplate="real part about %{x:.3~g}<br>%{y:.4~g} an image<extra></extra>",
        )  # fmt: skip
    return figure


def index_figure(report: SpectrumReport) -> go.Figure:
    """S of every step, in the order in which they run."""
    figure = go.Figure(layout=step_layout(report.steps, "S = max Re λ / min Re λ"))
    _add_spread(figure, report, "stiffness_index", "S", 0)
    return figure


def share_figure(report: SpectrumReport) -> go.Figure:
    """P of every step, and the share outside of Euler's disc."""
    figure = go.Figure(layout=step_layout(report.steps, "share of the eigenvalues"))
    _add_spread(figure, report, "negative_share", "P, negative real part", 0, write=percent)
    _add_spread(figure, report, "outside_share", "outside of Euler's disc", 1, write=percent)
    figure.update_yaxes(tickformat=".0%")
    return figure


def ends_figure(report: SpectrumReport) -> go.Figure:
    """Largest and smallest real part of every step."""
    figure = go.Figure(layout=step_layout(report.steps, "real part"))
    _add_spread(figure, report, "max_real", "largest", 1)
    _add_spread(figure, report, "min_real", "smallest", 0)
    return figure


def joined(spectra: Sequence[Spectrum]) -> Complexes:
    """Return the eigenvalues of several spectra."""
    return np.concatenate([np.zeros(0, complex), *(found.eigenvalues for found in spectra)])


def thinned(values: Complexes, most: int = POINTS) -> Complexes:
    """Return at most about so many of the values: zero once, the extremes, and an even choice.

    >>> chosen = thinned(np.arange(-5000, 5000) + 0j, 100)
    >>> len(chosen) <= 100, int(chosen.real.min()), int(chosen.real.max()), 0 in chosen
    (True, -5000, 4999, True)
    """
    moved = values[values != 0]
    zero = np.zeros(1 if len(moved) < len(values) else 0, complex)
    if len(moved) > most - len(zero):
        far = np.argsort(-np.abs(moved), kind="stable")[: most // 10]
        ends = [moved.real.argmax(), moved.real.argmin(), moved.imag.argmax(), moved.imag.argmin()]
        kept = np.union1d(far, ends)
        others = np.setdiff1d(np.arange(len(moved)), kept)
        others = others[np.argsort(moved[others].real, kind="stable")]
        room = most - len(kept) - len(zero)
        even = others[np.linspace(0, len(others) - 1, room).astype(int)]
        moved = moved[np.union1d(kept, even)]
    return np.concatenate([zero, moved])


def _reach(values: Complexes) -> tuple[float, float, float]:
    """Return the corners of a picture that shows all values and the whole disc."""
    low, high = min(values.real.min(initial=0), -2.0), max(values.real.max(initial=0), 0.0)
    up = max(float(np.abs(values.imag).max(initial=0)), 1.0)
    more = (_MARGIN - 1) * max(high - low, 2 * up)
    return float(low - more), float(high + more), float(up + more)


def _add_spread(
    figure: go.Figure,
    report: SpectrumReport,
    key: str,
    name: str,
    series: int,
    write: Callable[[Any], str] = number,
) -> None:
    """Draw the median over images at each step, and the band from the least to the greatest."""
    spans = []
    for found in report.spectra.values():
        known = [value for each in found if (value := finite(getattr(each, key))) is not None]
        spans.append(np.quantile(known, [0, 0.5, 1]).tolist() if known else None)

    def told(span: Sequence[float] | None) -> str:
        if span is None:
            return "not defined"
        return f"{name}: {write(span[1])} (median), {write(span[0])} to {write(span[2])}"

    add_spread(figure, report.steps, name, series, spans, among=f"all {report.noun}", told=told)
