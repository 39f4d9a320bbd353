"""Along which axis of a rate its channels lie: (N, C, H, W), (N, L, C), (N, H, W, C), ...

Where the network runs on a larger input too, the axes that grow with it are positions, and what
stays is proven to be the channels. Where it does not, the layers that computed the rate tell.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm

from stiffnet.batch_norms import PLAIN

_FIRST = (_ConvNd, _InstanceNorm, *PLAIN, nn.GroupNorm)
"""Layers that take and give channels along axis 1."""

_MORE = (32, 64, 16)  # by how much width, height and depth grow: most networks' stride divides it
_MORE_TOKENS = 3


def padded(value: Any) -> Any:
    """Make an image, a signal or a sequence of tokens a little larger along its positions."""
    if _is_map(value):
        return F.pad(value, [side for more in _MORE[: value.ndim - 2] for side in (0, more)])
    if isinstance(value, Tensor) and not value.is_floating_point() and value.ndim == 2:
        return torch.cat([value, value[:, -1:].expand(-1, _MORE_TOKENS)], dim=1)
    return value


def doubled(value: Any) -> Any:
    """Make an image or signal twice as large each way, for networks of fixed windows."""
    return value.repeat(1, 1, *[2] * (value.ndim - 2)) if _is_map(value) else value


def _is_map(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.ndim > 2


LARGER = (padded, doubled)
"""Ways to make the input of a network larger, tried in this order."""


def steady_axis(shape: tuple[int, ...], grown: tuple[int, ...]) -> int | None:
    """Tell the axis of the channels by a rate's shapes on two sizes; None where they do not.

    >>> steady_axis((2, 96, 96, 96), (2, 96, 112, 104)), steady_axis((2, 50, 64), (2, 50, 64))
    (1, None)
    """
    if len(shape) < 3 or len(shape) != len(grown):
        return None
    steady = [axis for axis in range(1, len(shape)) if shape[axis] == grown[axis]]
    return {1: 1, len(shape) - 1: -1}.get(steady[0]) if len(steady) == 1 else None


def channel_axis(shape: tuple[int, ...], branch: Iterable[nn.Module]) -> int | None:
    """Tell the axis of the channels by layers: 1, -1, or None where it cannot be told.

    The rate's shape has the batch axis first; `branch` are the modules that computed it. Layers of
    one kind have their channels along one axis. Where a branch has both kinds, their widths say
    which axes can be the one. Tokens have their channels last, also where a linear layer has mixed
    the tokens. Where both can be the axis of a map, the others are its height and width, and images
    are mostly square.
    """
    if len(shape) < 3:
        return None
    layers = list(_layers(branch))
    kinds = {axis for axis, _ in layers}
    fitting = [axis for axis in (1, -1) if shape[axis] in {width for _, width in layers}]
    if len(shape) == 3 and fitting == [1]:
        return 1 if (1, shape[1]) in layers else -1
    if len(shape) == 3 and len(fitting) == 2:
        return -1 if kinds == {-1} else None
    if len(shape) > 3 and kinds == {1}:  # GhostNet concatenates: its width is twice a layer's
        joined = any(shape[1] % width == 0 for _, width in layers)
        return 1 if 1 in fitting or (joined and not fitting) else None
    if len(shape) > 3 and kinds == {-1} and -1 in fitting:
        return -1
    if len(fitting) < 2:
        return fitting[0] if fitting else None
    first, *between, last = shape[1:]
    if first != last and len(set(between)) == 1:
        if last == between[0]:
            return 1
        if first == between[0]:
            return -1
    return None


def _layers(branch: Iterable[nn.Module]) -> Iterator[tuple[int, int]]:
    """Axis and width of what each layer gives."""
    for module in branch:
        for layer in module.modules():
            axis = 1 if isinstance(layer, _FIRST) or "2d" in type(layer).__name__ else -1
            for name in ("out_channels", "out_features", "num_features", "num_channels"):
                width = getattr(layer, name, None)
                if isinstance(width, int):
                    yield axis, width
            for parameter in layer.parameters(recurse=False):
                if parameter.ndim == 1:
                    yield axis, len(parameter)
