"""What every chart of a report has in common: fonts, axes, margins, legend, hover; heat maps."""

from collections.abc import Iterable
from typing import Any

from stiffnet.report.text import finite
from stiffnet.report.theme import LIGHT

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Noto Sans', sans-serif"


def canvas(height: int, *, x: str = "", y: str = "") -> dict[str, Any]:
    """Return the layout of an empty chart in light colours, with titles of its axes if given."""
    title = {"font": {"size": 13, "color": LIGHT["ink"]}, "standoff": 8}
    axis = {
        "gridcolor": LIGHT["grid"],
        "zeroline": False,
        "linecolor": LIGHT["axis"],
        "showline": True,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": LIGHT["axis"],
        "tickfont": {"size": 11.5, "color": LIGHT["muted"]},
        "automargin": True,
    }
    return {
        "template": "none",
        "height": height,
        "font": {"family": _FONT, "size": 13, "color": LIGHT["ink"]},
        "paper_bgcolor": LIGHT["paper"],
        "plot_bgcolor": "rgba(0, 0, 0, 0)",
        "margin": {"l": 8, "r": 12, "t": 62, "b": 8},
        "xaxis": axis | {"title": title | {"text": x}},
        "yaxis": axis | {"title": title | {"text": y}},
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.09,
            "yanchor": "bottom",
            "font": {"size": 12.5},
            "bgcolor": "rgba(0, 0, 0, 0)",
        },
        "hoverlabel": {
            "bgcolor": LIGHT["paper"],
            "bordercolor": LIGHT["axis"],
            "font": {"family": _FONT, "size": 12.5, "color": LIGHT["ink"]},
            "align": "left",
        },
    }


def heat_layout(height: int, *, x: str = "", y: str = "", **axes: Any) -> dict[str, Any]:
    """Return the layout of an empty heat map in a close frame; options are of both axes."""
    layout = canvas(height, x=x, y=y)
    layout["margin"] = {"l": 8, "r": 8, "t": 14, "b": 8}
    for axis in ("xaxis", "yaxis"):
        layout[axis] |= {"showgrid": False, **axes}
    return layout


def colour_bar(**options: Any) -> dict[str, Any]:
    """Return the bar that says what a colour means."""
    return {
        "thickness": 10,
        "len": 1,
        "outlinewidth": 0,
        "tickfont": {"size": 11, "color": LIGHT["muted"]},
        "xpad": 6,
        "ypad": 0,
        **options,
    }


def grid(values: Iterable[Iterable[Any]]) -> list[list[float | None]]:
    """Return numbers row by row, and None where there is none."""
    return [[finite(value) for value in line] for line in values]
