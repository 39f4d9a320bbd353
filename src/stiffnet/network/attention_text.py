"""Attention as text: ``se``, ``se,reduction=8`` with options, ``asr:se+se`` one after another."""

import math
import re
from collections.abc import Mapping
from typing import Any

from torch import nn

from stiffnet.attention.asr import PREFIX
from stiffnet.errors import RecipeError, UnknownNameError
from stiffnet.network.attach import attach

NONE = "none"
Option = int | float | bool | str
WORDS: dict[str, bool] = {"true": True, "false": False}
RESERVED = {"model", "module", "example"}  # arguments of `attach` that text cannot give


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


def attach_text(model: nn.Module, text: str, *, start: str, example: Any = None) -> nn.Module:
    """Attach what a text says, as in ``"asr:se+se,reduction=8"``; ``"none"`` says nothing."""
    modules = [] if text == NONE else read_attention(text)
    for module, options in modules:
        for name in options.keys() & RESERVED:
            raise UnknownNameError(
                f"There is no option of {module!r} called {name!r}; leave it out."
            )
    for module, options in modules:
        given: dict[str, Any] = {"start": start, "example": example, **options}
        attach(model, module, **given)
    return model


def split_attention(text: str) -> tuple[str | None, str | None]:
    """Return what stays of an attention when it is folded, and what does not.

    >>> split_attention("asr:se,depth=2+se,reduction=8")
    ('se,reduction=8', 'asr:se,depth=2')
    """
    if text == NONE:
        return None, None
    parts = [(name.startswith(f"{PREFIX}:"), name, given) for name, given in read_attention(text)]
    stays, folded = (
        "+".join(_written(name, given) for constant, name, given in parts if constant is wanted)
        for wanted in (False, True)
    )
    return stays or None, folded or None


def _written(name: str, options: Mapping[str, Option]) -> str:
    values = {key: str(v).lower() if isinstance(v, bool) else str(v) for key, v in options.items()}
    return ",".join([name, *(f"{key}={value}" for key, value in values.items())])


def _module(part: str, text: str) -> tuple[str, dict[str, Option]]:
    name, *rest = (piece.strip() for piece in part.split(","))
    options: dict[str, Option] = {}
    for given in rest:
        key, sign, value = (piece.strip() for piece in given.partition("="))
        if not sign or not key or not value or key in options:
            raise RecipeError(
                f"{given!r} in the attention {text!r} is not an option with a value, or is given "
                "twice. Write it as in `se,reduction=8`."
            )
        options[key] = _value(value)
        if isinstance(options[key], float) and not math.isfinite(options[key]):  # type: ignore[arg-type]
            raise RecipeError(
                f"{given!r} in the attention {text!r} is not a finite number. Give one."
            )
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
