"""The colours of a chart by role, for a light and for a dark page.

A figure is drawn in the light colours. The page swaps each for its dark counterpart when the
reader's system asks for dark, so the light colours are all different. Series follow the palette of
Okabe and Ito, darkened for contrast, which readers with any common colour blindness can tell apart;
both scales are monotone in lightness, and never so strong that a contour's label is hard to read.
"""

LIGHT = {
    "ink": "#1d2126",
    "muted": "#59616b",
    "grid": "#e6e5df",
    "axis": "#b9b8b0",
    "paper": "#ffffff",
    "band": "#f4f3ee",
    "contour": "rgba(29, 33, 38, 0.45)",
    "scale0": "#fdfdfc",
    "scale1": "#dceaf5",
    "scale2": "#b3d3ec",
    "scale3": "#84b9e0",
    "scale4": "#5a9fd3",
}
DARK = {
    "ink": "#e9ebee",
    "muted": "#a7afb9",
    "grid": "#2c3239",
    "axis": "#59626d",
    "paper": "#1a1e23",
    "band": "#20252b",
    "contour": "rgba(233, 235, 238, 0.45)",
    "scale0": "#1b2026",
    "scale1": "#1a3047",
    "scale2": "#1b4468",
    "scale3": "#1d5888",
    "scale4": "#226ca3",
}

_LIGHT_SERIES = ("#0072b2", "#c24e00", "#00795a", "#a8497f", "#8a6500", "#4b4fa8")
_DARK_SERIES = ("#56b4e9", "#ff8f4a", "#2fc79c", "#e59ac4", "#e8b93c", "#a5a8f5")
SERIES = len(_LIGHT_SERIES)


def _translucent(colour: str, opacity: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity})"


for _i, (_light, _dark) in enumerate(zip(_LIGHT_SERIES, _DARK_SERIES, strict=True)):
    for _role, _opacity_light, _opacity_dark in (("half", 0.28, 0.34), ("most", 0.12, 0.15)):
        LIGHT[f"{_role}{_i}"] = _translucent(_light, _opacity_light)
        DARK[f"{_role}{_i}"] = _translucent(_dark, _opacity_dark)
    LIGHT[f"series{_i}"], DARK[f"series{_i}"] = _light, _dark

TO_DARK = {LIGHT[role]: DARK[role] for role in LIGHT}
SCALE = [[i / 4, LIGHT[f"scale{i}"]] for i in range(5)]
