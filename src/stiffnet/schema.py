"""Checking what a file says against a type of ours: kinds, ranges, and no unknown fields."""

import re
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def fitted(content: object, kind: type[T]) -> T:
    """Return plain values as one of our types; a ValueError says what does not fit, and where.

    >>> fitted({"a": [1, 2]}, dict[str, tuple[int, ...]])
    {'a': (1, 2)}
    """
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise ValueError(_plain(str(error))) from error


def parsed(raw: bytes, kind: Any = Any) -> Any:
    """Return JSON as one of our types; a ValueError says what does not fit.

    >>> parsed(b'{"a": 1.5}', dict[str, int])
    Traceback (most recent call last):
    ValueError: expected 'int', got 'float' at '[...]'
    """
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise ValueError(_plain(str(error))) from error
    except msgspec.DecodeError as error:
        raise ValueError("it is not JSON") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _plain(said: str) -> str:
    """Make a part of a sentence of what msgspec says."""
    said = re.sub(r" - at `\$\.?(.*)`$", r" at `\1`", said)
    return (said[:1].lower() + said[1:]).replace("`", "'")
