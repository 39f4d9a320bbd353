"""How far two results are apart: the largest difference over the largest number."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def scaled_error(expected: Sequence[Tensor], result: Sequence[Tensor]) -> float:
    """Largest difference in a tensor over its largest number.

    Infinite where shapes differ, and NaN wherever one of the differences is.
    """
    if [t.shape for t in expected] != [t.shape for t in result]:
        return math.inf
    errors = [_tensor_error(*pair) for pair in zip(expected, result, strict=True)]
    return math.nan if any(map(math.isnan, errors)) else max(errors, default=0.0)


def _tensor_error(expected: Tensor, result: Tensor) -> float:
    if not expected.numel():
        return 0.0
    expected = expected.double()
    largest = float(expected.abs().max())
    error = float((expected - result.double()).abs().max())
    return error / largest if largest else error


def agree(expected: Sequence[Tensor], result: Sequence[Tensor], tolerance: float) -> bool:
    """Whether results are the same up to a scaled error; NaN and infinity must be in both.

    Whole numbers must be the same, and so must dtypes; where there are only shapes, these decide.
    """
    return len(expected) == len(result) and all(
        _agree(*pair, tolerance) for pair in zip(expected, result, strict=True)
    )


def _agree(expected: Tensor, result: Tensor, tolerance: float) -> bool:
    if expected.shape != result.shape or expected.dtype != result.dtype:
        return False
    if expected.is_meta or result.is_meta:
        return True
    if not expected.is_floating_point():
        return torch.equal(expected, result)
    finite = expected[expected.isfinite()]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    return torch.allclose(expected, result, rtol=0, atol=tolerance * largest, equal_nan=True)
