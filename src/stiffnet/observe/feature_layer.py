"""Which module of a network gives the last map of features, and how to read its output as one.

One image is run, and every module's output is looked at, in the order in which modules end:

- an output of four axes is a map where two neighbouring ones have the proportions of the image;
- tokens are a map where there are as many as a convolution before them had positions, and up to
  `MOST_PREFIX` more in front: class and register tokens, which have no place on the image.

By default the last map is taken that is made by convolutions (or by norms and activations right
after them, but not by pooling) or, where channels come last or in networks of tokens, by a norm. It
must have at least three rows and columns, because two have no middle, and the network's decision
must depend on it: the patch tokens that leave the last block of a ViT lead nowhere, so there it is
the norm before the last attention.
"""

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stiffnet.errors import FeatureMapError, UnknownNameError
from stiffnet.observe.measure import logits_of
from stiffnet.registry import unknown
from stiffnet.words import first_line, listed

MOST_PREFIX = 16
SHOWN = 4  # rows of numbers in a sentence
LEAST = 3  # rows and columns: of two, each half of an image has half of the central square


@dataclass(frozen=True)
class Layout:
    """How an output is read as maps."""

    kind: Literal["channels first", "channels last", "tokens"]
    size: tuple[int, int]
    """Rows and columns."""

    def maps(self, output: Tensor) -> Tensor:
        """Return an output as (images, channels, rows, columns), in memory of its own."""
        if self.kind == "channels first":
            return output.clone()
        if self.kind == "tokens":
            rows, columns = self.size
            output = output[:, -rows * columns :].unflatten(1, self.size)
        return output.permute(0, 3, 1, 2).clone()


@dataclass(frozen=True)
class FeatureLayer:
    """A module whose output is a map of features over the image."""

    name: str
    module: nn.Module
    layout: Layout
    logits: int
    """How many the network gives for an image."""


@dataclass(frozen=True)
class _Call:
    """One run of a module."""

    name: str
    module: nn.Module
    output: Tensor
    version: int
    """Of the output: it grows with each change in place."""
    layout: Layout | None

    @property
    def convolves(self) -> bool:
        return any(isinstance(each, nn.Conv2d) for each in self.module.modules())

    @property
    def pools(self) -> bool:
        return "Pool" in type(self.module).__name__

    @property
    def norms(self) -> bool:
        """Whether it is a norm, by the name of its class or its own, and not a layer with one."""
        names = type(self.module).__name__.lower(), self.name.rpartition(".")[2]
        layers = (nn.Linear, nn.Conv2d)
        return ("norm" in names[0] or names[1].startswith("norm")) and not any(
            isinstance(each, layers) for each in self.module.modules()
        )

    def gives_what(self, other: "_Call") -> bool:
        """Whether it gave the very same map, as an identity does, or a block as its last part."""
        return self.output is other.output and self.version == other.version


def feature_layer(model: nn.Module, images: Tensor, name: str = "") -> FeatureLayer:
    """Find the layer of that name, or the last one that gives a map of features.

    Args:
        model: A network in evaluation mode; gradients are enabled, and its parameters need none.
        images: A few images, of which the first is run.
        name: Path of a module; nothing for the last map.

    Raises:
        UnknownNameError: If there is no module of that name.
        FeatureMapError: If it gives no map, or runs more than once, or the network has no map, no
            logits, or cannot be run on the image.
    """
    if any(isinstance(each, torch.jit.ScriptModule) for each in model.modules()):
        raise FeatureMapError(
            f"{type(model).__name__} is scripted, and what its layers give cannot be seen. Give "
            "the network that it was made from."
        )
    modules = dict(model.named_modules())
    if name and name not in modules:
        listing = "`model.named_modules()`"
        raise UnknownNameError(unknown("layer", name, filter(None, modules), listing=listing))
    image = images[:1].detach().clone().requires_grad_()
    calls, logits = _calls(model, image)
    if name:
        return _chosen(model, name, [call for call in calls if call.name == name], logits)
    found = _candidates(calls)
    if not found:
        raise FeatureMapError(
            f"{type(model).__name__} has no feature maps: none of its convolutions gives at least "
            f"three rows and columns for an image of {image.shape[2]} × {image.shape[3]} pixels. "
            "Give a convolutional network or a vision transformer, larger images, or a `layer`."
        )
    gradients = torch.autograd.grad(
        logits.max(), [call.output for call in found], allow_unused=True
    )
    used = [
        (FeatureLayer(call.name, call.module, call.layout, logits.shape[1]), gradient)
        for call, gradient in zip(found, gradients, strict=True)
        if call.layout is not None and gradient is not None
    ]
    if not used:
        raise FeatureMapError(
            f"The decision of {type(model).__name__} does not depend on its last feature map, that "
            f"of {found[-1].name!r}. Give a `layer` that it depends on."
        )
    moving = [layer for layer, gradient in used if bool(layer.layout.maps(gradient).any())]
    chosen = (moving or [layer for layer, _ in used])[-1]
    if _goes_on(chosen, calls):
        raise FeatureMapError(
            f"{type(model).__name__} goes on with tokens after {chosen.name!r}, and it is not "
            "known where on the image they lie. Give the `layer` whose feature map you want."
        )
    return chosen


def _goes_on(layer: FeatureLayer, calls: list[_Call]) -> bool:
    """Whether tokens come after a map, and it is not known where they lie.

    Norms give them, or most of the network does, as where norms see them without their order.
    """
    ended = next(i for i, call in enumerate(calls) if call.name == layer.name)
    tokens = [call for call in calls[ended + 1 :] if call.output.ndim == 3]
    unplaced = any(
        call.norms and call.layout is None and call.output.shape[1] >= LEAST**2 for call in tokens
    )
    return unplaced or len(tokens) > ended


def _calls(model: nn.Module, image: Tensor) -> tuple[list[_Call], Tensor]:
    """Run an image, and return every run of a module that gave a tensor, and the logits."""
    calls: list[_Call] = []
    grid: list[tuple[int, int]] = []

    def take(name: str, module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.requires_grad:
            layout = _layout(output, image, grid)
            call = _Call(name, module, output, output._version, layout)
            if call.convolves and call.layout is not None and call.layout.kind == "channels first":
                grid[:] = [call.layout.size]
            calls.append(call)

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if name:
                hooks.enter_context(module.register_forward_hook(partial(take, name)))
        try:
            output = model(image)
        except Exception as error:
            raise FeatureMapError(
                f"{type(model).__name__} cannot be run on these images: {first_line(error)}. Give "
                "images that the network takes."
            ) from error
    parts = output if isinstance(output, list | tuple) else ()  # which have no names
    rows = [each.shape[1] for each in parts if isinstance(each, Tensor) and each.ndim == 2]
    if len(rows) > 1:
        raise FeatureMapError(
            f"{type(model).__name__} gives rows of {listed([*map(str, rows)], SHOWN)} numbers for "
            "an image, and it is not known which are the logits. Wrap it so that it returns those."
        )
    logits = logits_of(output)
    if logits is None or len(logits) != 1:
        raise FeatureMapError(
            f"{type(model).__name__} gives no row of logits for an image, so there is no class to "
            "explain. Give a classifier."
        )
    return calls, logits


def _layout(output: Tensor, image: Tensor, grid: list[tuple[int, int]]) -> Layout | None:
    shape = tuple(output.shape)
    if shape[:1] != (1,):  # windows or parts of patches, and not the image
        return None
    whole = (image.shape[2], image.shape[3])
    if len(shape) == 4 and _covers(shape[2:], whole):
        return Layout("channels first", (shape[2], shape[3]))
    if len(shape) == 4 and _covers(shape[1:3], whole):
        return Layout("channels last", (shape[1], shape[2]))
    if len(shape) == 3 and grid:
        [(rows, columns)] = grid
        if 0 <= shape[1] - rows * columns <= MOST_PREFIX:
            return Layout("tokens", (rows, columns))
    return None


def _covers(size: tuple[int, ...], whole: tuple[int, int]) -> bool:
    """Whether cells have the proportions of the image, up to one row or column of rounding."""
    rows, columns = size
    return min(size) >= LEAST and abs(rows * whole[1] - columns * whole[0]) <= max(whole)


def _candidates(calls: list[_Call]) -> list[_Call]:
    """Return the maps that features may be taken of, in the order in which they are made."""
    names = Counter(call.name for call in calls)
    found: list[_Call] = []
    for call in calls:
        if call.layout is None or call.pools or names[call.name] > 1:
            continue
        last = found[-1] if found else None
        if last is not None and call.gives_what(last):
            if last.name.startswith(f"{call.name}."):
                found[-1] = call
        elif call.layout.kind == "channels first":
            follows = last is not None and last.output.shape == call.output.shape
            if call.convolves or follows:
                found.append(call)
        elif call.norms or (call.convolves and call.layout.kind == "channels last"):
            found.append(call)
    return found


def _chosen(model: nn.Module, name: str, calls: list[_Call], logits: Tensor) -> FeatureLayer:
    if len(calls) != 1:
        ran = f"runs {len(calls)} times" if calls else "gives no tensor"
        raise FeatureMapError(
            f"Layer {name!r} of {type(model).__name__} {ran} in a pass, so it has no one feature "
            "map. Choose a layer that runs once, such as the block it is in."
        )
    [call] = calls
    if call.layout is None:
        raise FeatureMapError(
            f"Layer {name!r} of {type(model).__name__} gives numbers of shape "
            f"{tuple(call.output.shape[1:])} for an image, which is not a map of features over it "
            f"with at least {LEAST} rows and columns. Choose a convolution or a block of them, or "
            "leave `layer` out."
        )
    return FeatureLayer(call.name, call.module, call.layout, logits.shape[1])
