"""Tensors that lie in the same memory: what is written into one of them, the others have too."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes


def memory_of(tensor: Tensor) -> int | None:
    """Tell memories apart; None where a tensor does not lie in one piece of it."""
    if tensor.layout is not torch.strided:
        return None
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):  # a subclass that only looks like a tensor
        return None


def part_at(tensor: Tensor, index: Any) -> Tensor:
    """The part of a tensor that ``tensor[index] = ...`` writes; all of it where that is unclear."""
    entries = index if isinstance(index, tuple) else (index,)
    if not all(entry is None or type(entry) in (int, slice, type(...)) for entry in entries):
        return tensor
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        return tensor[index]


def is_twin(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors in the same memory are the same numbers in the same places."""
    return one.dtype == other.dtype and _layout(one) == _layout(other)


def reached(written: Tensor, whole: Tensor, others: Iterable[Tensor]) -> list[tuple[Tensor, bool]]:
    """Which of `others` a write changes, and whether they lie in `whole` entirely.

    All lie in one memory, and `written` is the part of `whole` that was written.
    """
    found: list[tuple[Tensor, bool]] = []
    others = [other for other in others if other is not whole and other.numel()]
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        size = max(map(_end, [whole, *others]), default=0) if others else 0
        touched, inside = (_marked(size, tensor) for tensor in (written, whole))
        for other in others:
            if other.dtype != whole.dtype:  # the same bytes, counted otherwise
                found.append((other, False))
            elif bool(torch.as_strided(touched, *_layout(other)).any()):
                found.append((other, bool(torch.as_strided(inside, *_layout(other)).all())))
    return found


def _layout(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    return tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())


def _end(tensor: Tensor) -> int:
    """The number of the last entry of the memory that is a tensor's, and one more."""
    shape, strides, offset = _layout(tensor)
    return offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + 1


def _marked(size: int, tensor: Tensor) -> Tensor:
    """A memory of marks, set where a tensor lies."""
    marks = torch.zeros(size, dtype=torch.bool)
    if size and tensor.numel():
        torch.as_strided(marks, *_layout(tensor)).fill_(True)
    return marks
