"""What is known of tensor functions: their kind, the values that they read, the order of axes."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

ADDITIONS = frozenset(("add", "add_", "sub", "sub_"))
SCALINGS = frozenset(("mul", "mul_", "div", "div_", "true_divide"))
KINDS = dict.fromkeys(ADDITIONS, "add") | dict.fromkeys(SCALINGS, "mul")
"""Functions whose calls are numbered, module by module: what `Site`s refer to."""

FUSED = frozenset((
    "addcmul", "addcmul_", "addcdiv", "addcdiv_", "addmm", "addmm_", "baddbmm", "baddbmm_",
    "addbmm", "addmv", "lerp", "lerp_", "index_add", "index_add_", "scatter_add", "scatter_add_",
    "_foreach_add", "_foreach_add_",
))  # fmt: skip
"""Functions that add to their first argument what they compute from the others."""

SAME_VALUES = frozenset((
    "clone", "contiguous", "detach", "dropout", "flatten", "float", "half", "bfloat16", "double",
    "movedim", "permute", "reshape", "squeeze", "swapaxes", "t", "to", "transpose", "type",
    "type_as", "unflatten", "unsqueeze", "view", "view_as", "reshape_as", "cpu",
    "cuda", "expand", "expand_as", "feature_dropout", "dropout1d", "dropout2d", "dropout3d",
    "alpha_dropout", "feature_alpha_dropout", "positive", "__pos__",
))  # fmt: skip
"""Functions that keep the numbers and at most rearrange them."""

LINEAR = SAME_VALUES | frozenset((
    "add", "add_", "sub", "sub_", "rsub", "neg", "neg_", "conv1d", "conv2d", "conv3d",
    "conv_transpose2d", "linear", "batch_norm", "mean", "sum", "avg_pool1d", "avg_pool2d",
    "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "pad", "constant_pad_nd", "cat",
    "concat", "stack", "chunk", "split", "tensor_split", "unbind", "__getitem__", "narrow",
    "select", "index_select", "interpolate", "upsample", "pixel_shuffle", "pixel_unshuffle",
    "roll", "fold", "unfold", "flip", "rot90", "cumsum", "channel_shuffle", "repeat",
    "repeat_interleave", "gather", "convolution", "_convolution", "native_batch_norm", "slice",
    "alias", "_to_copy", "_unsafe_view", "_adaptive_avg_pool2d",
    "_native_batch_norm_legit_no_training",
))  # fmt: skip
"""Functions that are linear (or affine) in what they are given, with evaluation statistics."""

PRODUCTS = frozenset((
    "mul", "mul_", "matmul", "bmm", "mm", "einsum", "div", "div_", "true_divide", "baddbmm",
    "__matmul__", "addmm", "addcmul",
))  # fmt: skip
"""Functions that are linear as long as only one operand depends on the network's input."""

POOLINGS = frozenset((
    "mean", "sum", "amax", "amin", "max", "min", "std", "var", "logsumexp",
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
    "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
))  # fmt: skip
"""Functions that make a few numbers out of a map of any size."""

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


def operands_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The two operands of an addition or product, however they were passed."""
    return (*args, *(kwargs[name] for name in ("input", "other") if name in kwargs))[:2]


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
