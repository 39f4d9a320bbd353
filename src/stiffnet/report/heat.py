"""Heat maps: a layout with a close frame, and the bar beside it that says what a colour means."""

from collections.abc import Iterable
from typing import Any

from stiffnet.report.canvas import canvas
from stiffnet.report.text import finite
from stiffnet.report.theme import LIGHT


def heat_layout(height: int, *, x: str, y: str, **axes: Any) -> dict[str, Any]:
    """Return the layout of an empty heat map with the titles of its axes, and options of both."""
    layout = canvas(height=height, x=x, y=y)
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
