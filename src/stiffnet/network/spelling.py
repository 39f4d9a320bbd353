"""Attention as text: ``se``, ``se,reduction=8`` with options, ``asr:se+se`` one after another."""

import math
import re

from stiffnet.errors import RecipeError

NONE = "none"
Option = int | float | bool | str
WORDS: dict[str, bool] = {"true": True, "false": False}


def read_attention(text: str) -> list[tuple[str, dict[str, Option]]]:
    """Split the text into modules, in the order in which they are attached, and their options.

    A plus sign joins modules where a letter follows it: ``1e+3`` and ``x_t+1`` are values.

    Raises:
        RecipeError: If an option has no value, or comes twice, or a module has no name.

    Example:
        >>> read_attention("asr:se,depth=2+se,reduction=8")
        [('asr:se', {'depth': 2}), ('se', {'reduction': 8})]
    """
    return [_module(part, text) for part in re.split(r"\s*\+\s*(?=[^\W\d])", text)]


def _module(part: str, text: str) -> tuple[str, dict[str, Option]]:
    name, *rest = (piece.strip() for piece in part.split(","))
    options: dict[str, Option] = {}
    for given in rest:
        key, sign, value = (piece.strip() for piece in given.partition("="))
        if not sign or not key or not value or key in options:
            raise RecipeError(
                f"{given!r} in the attention {text!r} is no option with a value, or comes twice. "
                "Write it as in `se,reduction=8`."
            )
        options[key] = _value(value)
        if isinstance(options[key], float) and not math.isfinite(options[key]):  # type: ignore[arg-type]
            raise RecipeError(f"{given!r} in the attention {text!r} is no finite number. Give one.")
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
