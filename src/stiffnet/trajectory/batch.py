"""Reading a batch: the arguments of a call, the number of its samples, and fewer or more."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor


def as_arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Read an example as the positional and keyword arguments of a call.

    A list is one argument: the images of a detector, which may differ in size.
    """
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, tuple):
        return example, {}
    return (example,), {}


def samples_in(value: Any) -> int:
    """Number of samples in a batch: the length of its first tensor, or of a list of them."""
    if isinstance(value, Tensor):
        return len(value) if value.ndim else 0
    if isinstance(value, list) and value and all(isinstance(item, Tensor) for item in value):
        return len(value)
    parts = value.values() if isinstance(value, Mapping) else value
    if isinstance(parts, str) or not isinstance(parts, Iterable):
        return 0
    return next((n for part in parts if (n := samples_in(part))), 0)


def resized(batch: Any, size: int) -> Any:
    """A batch of the first `size` samples, from the beginning again where there are fewer.

    Tensors and lists of another length than the batch (a mask, say) are left alone.
    """
    count = samples_in(batch)

    def change(value: Any) -> Any:
        if isinstance(value, Tensor) and value.ndim and len(value) == count:
            return value[torch.arange(size, device=value.device) % count]
        if isinstance(value, list) and len(value) == count:
            return [value[i % count] for i in range(size)]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(change, value))
        if isinstance(value, torch.Size):
            return value
        if isinstance(value, list | tuple):
            changed = (change(item) for item in value)
            return list(changed) if isinstance(value, list) else tuple(changed)
        if isinstance(value, Mapping):
            return {key: change(item) for key, item in value.items()}
        return value

    return change(batch) if count else batch
