"""How far two networks' outputs are apart: the largest difference over the largest output."""

import math
from collections.abc import Sequence

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
