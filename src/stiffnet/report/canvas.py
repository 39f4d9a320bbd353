"""What every chart of a report has in common: fonts, axes, margins, legend, hover."""

from typing import Any

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
