"""What every chart of a report has in common: fonts, axes, margins, legend, hover."""

from typing import Any

from stiffnet.report.theme import LIGHT

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Noto Sans', sans-serif"


def canvas(height: int, *, x: str = "", y: str = "") -> dict[str, Any]:
    """Return the layout of an empty chart in light colours, with titles of its axes if given."""
    axis = {
        "gridcolor": LIGHT["grid"],
        "zeroline": False,
        "linecolor": LIGHT["axis"],
        "showline": True,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": LIGHT["axis"],
        "tickfont": {"size": 11.5, "color": LIGHT["muted"]},
        "title": {"font": {"size": 13, "color": LIGHT["ink"]}},
        "automargin": True,
    }
    return {
        "template": "none",
        "height": height,
        "font": {"family": _FONT, "size": 13, "color": LIGHT["ink"]},
        "paper_bgcolor": LIGHT["paper"],
        "plot_bgcolor": "rgba(0, 0, 0, 0)",
        "margin": {"l": 8, "r": 12, "t": 62, "b": 8},
        "xaxis": axis | ({"title": {"text": x, "standoff": 8}} if x else {}),
        "yaxis": axis | ({"title": {"text": y, "standoff": 8}} if y else {}),
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
