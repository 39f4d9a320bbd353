"""JSON text with a checksum over all of it, and arrays in it, packed without rounding."""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Content = Mapping[str, Any]
_DTYPES = {"<i8": "<i8", "<f8": "<f8", "|b1": "|b1"}


@dataclass(frozen=True)
class Seal:
    """How a kind of file is written, and how its checksum is: under which key, over which text."""

    key: str
    indent: int
    sort_keys: bool = False  # in the text that is summed, which is compact then

    def text(self, content: Content) -> str:
        """Return content as JSON text, without NaN, that says when it was damaged."""
        return self._written({**content, self.key: self._checksum(content)})

    def opened(self, raw: bytes, form: object, *, exact: bool = False) -> dict[str, Any]:
        """Return the content of such a text, whose ``format`` must be `form`.

        With `exact`, other bytes that mean the same are refused too. Raises a ValueError that says
        what is wrong, if it is not such a text or its checksum does not match.
        """
        try:
            content = json.loads(raw, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise ValueError("it is not JSON") from error
        if not isinstance(content, dict) or content.get("format") != form:
            found = content.get("format") if isinstance(content, dict) else None
            raise ValueError(f"it has format {found!r}, and this version reads {form!r}")
        if content.pop(self.key, "") != self._checksum(content):
            raise ValueError("its checksum does not match")
        if exact and raw != self.text(content).encode():
            raise ValueError("its bytes were changed")
        return content

    def _written(self, content: Content) -> str:
        return json.dumps(content, allow_nan=False, indent=self.indent) + "\n"

    def _checksum(self, content: Content) -> str:
        text = self._written(content)
        if self.sort_keys:
            text = json.dumps(content, allow_nan=False, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


RESULT = Seal("sha256", indent=1, sort_keys=True)


def sealed(content: Content) -> str:
    """Return the content of a result as JSON text that says when it was damaged."""
    return RESULT.text(content)


def packed(values: npt.NDArray[Any]) -> dict[str, Any]:
    """Return an array as its dtype, its shape and base64 of its little-endian numbers.

    >>> unpacked(packed(np.array([[0.1], [np.nan]])))
    array([[0.1],
           [nan]])
    """
    dtype = values.dtype.newbyteorder("<")
    data = base64.b64encode(np.ascontiguousarray(values, dtype).tobytes()).decode()
    return {"dtype": dtype.str, "shape": list(values.shape), "base64": data}


def unpacked(value: Mapping[str, Any]) -> npt.NDArray[Any]:
    """Return the array that `packed` was given; KeyError, TypeError or ValueError without one."""
    flat = np.frombuffer(base64.b64decode(value["base64"], validate=True), _DTYPES[value["dtype"]])
    return flat.reshape(value["shape"])


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
