"""Tensors in nested containers: arguments, batches and outputs of any network.

torch's own pytree takes mappings of other classes, slices and dataclasses for leaves, so that the
tensors in them would be passed over without a word.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

import torch
from torch import Tensor, nn


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor in nested sequences, mappings (Hugging Face outputs too) and dataclasses.

    >>> [tensor.item() for tensor in tensors_in({"a": (torch.tensor(1), [torch.tensor(2)])})]
    [1, 2]
    """
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple | Mapping):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_in(item)
    elif (
        hasattr(value, "__dict__")
        and not isinstance(value, type | nn.Module)
        and not callable(value)
    ):
        parts = vars(value).values()  # of a dataclass, torchvision's `ImageList`, …
        plain = (Tensor, list, tuple, Mapping)
        yield from tensors_in([v for v in parts if isinstance(v, plain) or is_dataclass(v)])


def mapped(
    given: Any, change: Callable[[Any], Any], whole: Callable[[Any], bool] = lambda value: False
) -> Any:
    """Change every leaf of nested lists, tuples, mappings and slices.

    Sequences stay what they are, but that a shape whose numbers become something else is a plain
    tuple then; mappings become dictionaries; a range is a leaf, and so is what `whole` says.

    >>> mapped({"a": (1, [2, 3])}, lambda number: -number)
    {'a': (-1, [-2, -3])}
    """
    if whole(given):
        return change(given)
    if isinstance(given, slice):
        parts = (given.start, given.stop, given.step)
        return slice(*(mapped(part, change, whole) for part in parts))
    if isinstance(given, list | tuple):
        return _rebuilt(given, [mapped(item, change, whole) for item in given])
    if isinstance(given, Mapping):
        return {key: mapped(item, change, whole) for key, item in given.items()}
    return change(given)


def _rebuilt(given: list[Any] | tuple[Any, ...], items: list[Any]) -> Any:
    if hasattr(given, "_fields"):
        return type(given)(*items)  # a named tuple
    if isinstance(given, torch.Size) and not all(isinstance(item, int) for item in items):
        return tuple(items)
    try:  # a class of somebody's, too: such as `torch.return_types.max`
        return type(given)(items)
    except Exception:  # whose constructor takes something else
        return items if isinstance(given, list) else tuple(items)
