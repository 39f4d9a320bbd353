"""An attention module as text: ``se``, or ``se,reduction=8`` with options."""

import math
import re

from stiffnet.errors import RecipeError

NONE = "none"
Option = int | float | bool | str
WORDS: dict[str, bool] = {"true": True, "false": False}


def read_attention(text: str) -> tuple[str, dict[str, Option]]:
    """Split the text into the module's name and its options.

    Raises:
        RecipeError: If an option has no value, or comes twice.

    Example:
        >>> read_attention("se,reduction=8")
        ('se', {'reduction': 8})
    """
    name, *rest = (part.strip() for part in text.split(","))
    options: dict[str, Option] = {}
    for part in rest:
        key, sign, value = (piece.strip() for piece in part.partition("="))
        if not sign or not key or not value or key in options:
            raise RecipeError(
                f"{part!r} in the attention {text!r} is no option with a value, or comes twice. "
                "Write it as in `se,reduction=8`."
            )
        options[key] = _value(value)
        if isinstance(options[key], float) and not math.isfinite(options[key]):  # type: ignore[arg-type]
            raise RecipeError(f"{part!r} in the attention {text!r} is no finite number. Give one.")
    return name, options


def _value(text: str) -> Option:
    if text in WORDS:
        return WORDS[text]
    if re.fullmatch(r"[+-]?\d+", text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text
