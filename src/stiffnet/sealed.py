"""Results as JSON text: arrays packed without rounding, and a checksum over all of it."""

import base64
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from stiffnet.errors import CorruptFileError, StorageError

T = TypeVar("T")
_DTYPES = {"<i8": "<i8", "<f8": "<f8", "|b1": "|b1"}


def sealed(content: Mapping[str, Any]) -> str:
    """Return content as JSON text, without NaN, that says when it was damaged."""
    return json.dumps({**content, "sha256": _checksum(content)}, allow_nan=False, indent=1) + "\n"


def unsealed(
    path: str | os.PathLike[str], build: Callable[[dict[str, Any]], T], *, form: str, damaged: str
) -> T:
    """Return what `build` makes of the content of a file of `sealed` text.

    Args:
        path: The file.
        build: Makes a result of the content, and may fail on what is none.
        form: What the content has to say that its ``format`` is.
        damaged: What to say, behind the path, of a file that is none or was changed.

    Raises:
        StorageError: If the file cannot be read.
        CorruptFileError: If it is no such file, or damaged.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        content = json.loads(text, parse_constant=_refuse)
        if content["format"] != form or content.pop("sha256") != _checksum(content):
            raise ValueError("the checksum is not that of the content")
        return build(content)
    except OSError as error:
        raise StorageError(
            f"{path} could not be read: {error.strerror}. Name a report that `save` wrote."
        ) from error
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise CorruptFileError(f"{path} {damaged}") from error


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
    """Return the array that `packed` was given.

    Raises:
        KeyError, TypeError, ValueError: If it is no such thing.
    """
    flat = np.frombuffer(base64.b64decode(value["base64"], validate=True), _DTYPES[value["dtype"]])
    return flat.reshape(value["shape"])


def packed_fields(record: object) -> dict[str, Any]:
    """Return the fields of a record by name, its arrays packed and those that are None left out."""
    fields = {key: value for key, value in vars(record).items() if value is not None}
    return {k: packed(v) if isinstance(v, np.ndarray) else v for k, v in fields.items()}


def unpacked_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `packed_fields` was given, by name."""
    return {k: unpacked(v) if isinstance(v, Mapping) else v for k, v in row.items()}


def _checksum(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, allow_nan=False, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
