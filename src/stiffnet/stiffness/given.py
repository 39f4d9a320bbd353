"""Numbers as users give them, as float64 tensors; what is not real numbers is refused."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from stiffnet.errors import StepError
from stiffnet.trajectory.norms import as_double

_REAL = "biufO"  # NumPy's kinds: booleans, whole numbers, floats, and objects, which are tried


def as_numbers(values: Any, *, what: str) -> Tensor:
    """Return a tensor, an array, a list or a table of real numbers as a float64 tensor.

    Args:
        values: The numbers; gradients are not followed.
        what: The argument's name, for messages.

    Returns:
        A float64 tensor, on the given tensor's own device if that has float64.

    Raises:
        StepError: If they are complex, masked, words, dates, of unequal lengths, sparse, or on a
            device that holds no numbers. NaN is a number here; who takes numbers names it.

    Example:
        >>> as_numbers([[1, 2]], what="nsi")
        tensor([[1., 2.]], dtype=torch.float64)
    """
    if isinstance(values, Tensor):
        dense = values.layout == torch.strided and not values.is_meta and not values.is_nested
        if dense and not values.is_complex() and not values.is_quantized:
            return as_double(values.detach())
        found = f"a tensor of {values.dtype}, {values.layout}, on {values.device}"
    else:
        found = f"of type {type(values).__name__}"
        try:
            array = np.asarray(values)
            if array.dtype.kind in _REAL and not np.ma.getmaskarray(values).any():
                return torch.from_numpy(np.array(array, dtype=np.float64))
            found += f" with {array.dtype}"
        except (TypeError, ValueError, RuntimeError):
            found += ", whose parts do not make an array of numbers"
    raise StepError(
        f"`{what}` is {found}; give real numbers, none of them masked, as a dense tensor, an "
        "array or a list."
    )
