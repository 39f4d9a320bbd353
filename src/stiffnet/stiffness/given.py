"""Numbers as users give them, as float64 arrays; what is not real numbers is refused.

Tensors are taken from any device, and torch is not imported for those who give none.
"""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stiffnet.errors import StepError
from stiffnet.words import listed

Floats = NDArray[np.float64]

_REAL = "biufO"  # NumPy's kinds: booleans, whole numbers, floats, and objects, which are tried
_LISTED = 5  # how many sample numbers a message spells out


def as_numbers(values: Any, *, what: str) -> Floats:
    """Return a tensor, an array, a list or a table of real numbers as a float64 array.

    >>> as_numbers([[1, 2]], what="nsi")
    array([[1., 2.]])

    Raises:
        StepError: If they are complex, masked, words, dates, of unequal lengths, sparse, or on a
            device that holds no numbers. NaN is a number here; who takes numbers names it.
    """
    if is_tensor(values):
        dense = str(values.layout) == "torch.strided" and not values.is_meta
        if dense and not (values.is_nested or values.is_complex() or values.is_quantized):
            numbers: Floats = values.detach().cpu().double().numpy(force=True)
            return numbers
        found = f"a tensor of {values.dtype}, {values.layout}, on {values.device}"
    else:
        found = f"of type {type(values).__name__}"
        try:
            array = np.asarray(values)
            if array.dtype.kind in _REAL and not np.ma.getmaskarray(values).any():
                return np.asarray(array, dtype=np.float64)
            found += f" with {array.dtype}"
        except (TypeError, ValueError, RuntimeError):
            found += ", whose parts do not make an array of numbers"
    raise StepError(
        f"`{what}` is {found}; give real numbers, none of them masked, as a dense tensor, an "
        "array or a list."
    )


def is_tensor(values: Any) -> bool:
    """Say whether something is a tensor; where torch was never imported, nothing is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(values, torch.Tensor)


def as_array(values: Any) -> NDArray[Any]:
    """Return a tensor, an array or a list as an array of its own kind of entries."""
    return values.numpy(force=True) if is_tensor(values) else np.asarray(values)


def as_given(result: Floats, values: Any) -> Any:
    """Return an array as what `values` is: a tensor on its device, or the array.

    A tensor on a device without float64 gives one on the CPU.
    """
    if not is_tensor(values):
        return result
    import torch

    device = "cpu" if values.device.type == "mps" else values.device
    return torch.from_numpy(result).to(device)


def name_samples(bad: Any, first: int = 0) -> str:
    """Say which samples a mask marks, the first few by number; the mask begins at `first`.

    Example:
        >>> name_samples([False, True, False, True])
        'samples 1 and 3'
    """
    numbers = [str(first + number) for number in np.flatnonzero(as_array(bad))]
    return f"sample{'s' if len(numbers) > 1 else ''} {listed(numbers, most=_LISTED)}"
