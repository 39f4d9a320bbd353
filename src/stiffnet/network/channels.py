"""Along which axis of a rate its channels lie: (N, C, H, W), (N, L, C), (N, H, W, C), ..."""

from collections.abc import Iterable, Iterator

from torch import nn

_FIRST = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d,
    nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
)  # fmt: skip
"""Layers that take and give channels along axis 1."""


def channel_axis(shape: tuple[int, ...], branch: Iterable[nn.Module]) -> int | None:
    """Tell the axis of the channels: 1, -1, or None where it cannot be told.

    The widths of the layers that computed the rate say which axes can be the one. Where none can,
    the rate was put together from narrower ones, which convolutions do along axis 1. Tokens have
    their channels last, also where a linear layer has mixed the tokens, and only convolutions along
    one axis have them first. Where both can be the axis of a map, the others are its height and
    width, and images are mostly square; where that does not help either, its last layer decides.

    Args:
        shape: Of the rate, batch axis first.
        branch: The modules that computed the rate, in the order in which they ran.
    """
    if len(shape) < 3:
        return None
    layers = list(_layers(branch))
    widths = {width for _, width in layers}
    fitting = [axis for axis in (1, -1) if shape[axis] in widths]
    if len(shape) == 3 and fitting == [1]:
        return 1 if (1, shape[1]) in layers else -1
    if len(shape) == 3 and len(fitting) == 2:
        return 1 if {axis for axis, _ in layers} == {1} else -1
    if not fitting and len(shape) > 3 and {axis for axis, _ in layers} == {1}:
        return 1
    if len(fitting) < 2:
        return fitting[0] if fitting else None
    first, *between, last = shape[1:]
    if first != last and len(set(between)) == 1:
        if last == between[0]:
            return 1
        if first == between[0]:
            return -1
    return next((axis for axis, width in reversed(layers) if shape[axis] == width), None)


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
