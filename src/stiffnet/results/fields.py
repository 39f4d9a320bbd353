"""Records as JSON types, and back, by their fields and the types of these."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from stiffnet.sealed import packed, unpacked

T = TypeVar("T")


def row_of(record: Any) -> dict[str, Any]:
    """Return the fields of a record as JSON types, arrays packed without rounding."""
    return {each.name: _plain(getattr(record, each.name)) for each in fields(record)}


def record_of(row: Mapping[str, Any], kind: type[T]) -> T:
    """Make a record of what `row_of` gave; KeyError, TypeError or ValueError if it gave another."""
    return msgspec.convert(row, kind, dec_hook=_array)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if np.iscomplexobj(value):  # real and imaginary parts are two columns
            value = np.ascontiguousarray(value).view(np.float64).reshape(-1, 2)
        return packed(value)
    if hasattr(value, "to_row"):  # which may have a form of its own
        return value.to_row()
    if is_dataclass(value):
        return row_of(value)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _array(kind: Any, value: Any) -> npt.NDArray[Any]:
    """Make an array of what it was packed into; msgspec makes everything else."""
    dtype = get_args(get_args(kind)[1])[0]
    found = unpacked(value)
    return np.ascontiguousarray(found).view(dtype)[:, 0] if dtype is np.complex128 else found
