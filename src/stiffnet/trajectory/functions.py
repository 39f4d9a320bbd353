"""What is known of a tensor function: its name, which values it reads, how it orders axes."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

_LIKE_THE_FIRST = frozenset((
    "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like",
    "randint_like", "new_zeros", "new_ones", "new_empty", "new_full", "new_tensor",
    "new_empty_strided", "_shape_as_tensor", "zero_", "fill_", "copy_", "normal_", "uniform_",
    "random_", "bernoulli_", "exponential_", "cauchy_", "log_normal_", "geometric_",
))  # fmt: skip
"""Functions that look at the form of their first argument only, or write over its values."""

_LIKE_THE_SECOND = frozenset((
    "expand_as", "view_as", "reshape_as", "type_as", "to", "resize_as", "resize_as_",
))  # fmt: skip
"""Functions that look at the form of their second argument only."""

PERMUTATIONS = frozenset(
    ("permute", "transpose", "movedim", "moveaxis", "swapaxes", "swapdims", "t")
)
"""Functions that put axes in another order and do nothing else."""

FROM_OUTSIDE = frozenset(("tensor", "as_tensor", "asarray", "from_numpy", "from_dlpack"))
TO_OUTSIDE = frozenset(("numpy", "__array__", "tolist", "item", "__dlpack__"))
"""Functions through which values come into torch, and through which they leave it."""


def name_of(func: Any) -> str:
    """Name of a tensor function, the same for a method, a function and an operator of `torch.ops`.

    >>> name_of(torch.Tensor.add), name_of(torch.ops.aten.add.Tensor)
    ('add', 'add')
    """
    name = getattr(func, "__name__", "") or ""
    if isinstance(func, torch._ops.OpOverload):
        return name.partition(".")[0]
    if name == "__get__" and getattr(func, "__self__", None) is torch.Tensor.data:
        return "detach"
    return name


def values_read(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return those arguments of a function whose values its result can depend on.

    `zeros_like(x)` reads the shape of x and none of its values; `x.expand_as(y)` no value of y.
    """
    if name in _LIKE_THE_FIRST:
        first = () if args else ("input", "self")
        return args[1:], {key: value for key, value in kwargs.items() if key not in first}
    if name in _LIKE_THE_SECOND:
        return args[:1], {key: value for key, value in kwargs.items() if key != "other"}
    return args, kwargs


def order_of(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> tuple[int, ...]:
    """Where each axis of a permuted tensor was before.

    >>> order_of(torch.Tensor.transpose, (torch.empty(4, 4, 4), 0, 1), {})
    (1, 0, 2)
    """
    value = args[0] if args else kwargs.get("input")
    if not isinstance(value, Tensor):
        return ()
    with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
        axes = torch.empty(tuple(range(value.ndim)), device="meta")
        given = {key: other for key, other in kwargs.items() if key != "input"}
        return tuple(func(axes, *args[1:], **given).shape)
