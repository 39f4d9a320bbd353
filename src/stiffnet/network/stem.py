"""A stem for large images that meets small ones, noticed before it costs anything.

A network for 224 pixels shrinks its input 32-fold. Of a 32-pixel image one pixel is left, on which
the outer weights of a 3×3 kernel see padding alone, and accuracy suffers without a word.
"""

import copy
import math
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.network.create import create_model
from stiffnet.trajectory.wrappers import plain_run, unwrap
from stiffnet.words import first_line

LARGE = 224  # supposed of a network that does not say what it is made for
PATCH = 4  # a first convolution that shrinks the image so much at once cuts it into patches,
PATCHES = 4  # and fewer than this along each side are too few
VITS = ("vit_tiny_cifar", "vit_tiny_stl")
OURS = {  # by what the name of an architecture, or of its class, contains
    "resnet": ("resnet18_small", "resnet34_small", "resnet50_small"),
    "vgg": ("vgg19_cifar",),
    "mobilenet": ("mobilenet_cifar",),
    "shufflenet": ("shufflenetv2_cifar",),
    "vit": VITS,
    "deit": VITS,
    "visiontransformer": VITS,
}
ANY_KIND = ("resnet56_cifar",)


def stem_warning(model: nn.Module | str, image_size: int) -> str | None:
    """Say whether a network is made for larger images than it will get, and which one fits.

    The network, or the one of that name, is followed through one pass of shapes, without
    arithmetic, and left as it was. `image_size` is the side of the images after any resizing. None
    is returned if nothing is wrong, or nothing can be said.

    Example:
        >>> "Use resnet50_small" in stem_warning("resnet50", 32)
        True
        >>> stem_warning("resnet50_small", 32) is None
        True
    """
    network = _on_meta(model) if isinstance(model, str) else unwrap(model)
    published = _published_size(network)
    trouble = _trouble(network, image_size) if image_size < (published or LARGE) else None
    if trouble is None:
        return None
    name = model if isinstance(model, str) else _name(network)
    larger = f"images of {published} pixels" if published else "larger images"
    ours = _fitting(network, image_size)
    remedy = f"Use {ours}, or enlarge the images." if ours else "Enlarge the images."
    return f"{name} is made for {larger}: {trouble}. {remedy}"


def _trouble(network: nn.Module, size: int) -> str | None:
    """What happens to an image of this size, if it is bad."""
    try:
        convolutions = _convolutions(network, size)
    except Exception as error:  # whatever a network's own code raises
        with suppress(Exception):  # unless it does so on images of its own size too
            _convolutions(network, _published_size(network) or LARGE)
            return f"it cannot be run on {size} pixels ({first_line(error)})"
        return None
    for _, before, left in convolutions[:1]:
        if left < PATCHES and before >= PATCH * left:
            return f"of {size} pixels it makes no more than {left} × {left} patches"
    if any(left == 1 and kernel > before for kernel, before, left in convolutions):
        return (
            f"of {size} pixels it leaves one, where the outer weights of its last kernels see "
            "only padding"
        )
    return None


def _convolutions(network: nn.Module, size: int) -> list[tuple[int, int, int]]:
    """What every convolution does to one image of this size, in the order of the pass.

    That is the side of its kernel, and of the maps before and after it.
    """
    seen: list[tuple[int, int, int]] = []

    def see(module: nn.Conv2d, args: tuple[Tensor, ...], output: Tensor) -> None:
        before, after = (min(value.shape[-2:]) for value in (args[0], output))
        seen.append((max(module.kernel_size), before, after))

    shape = copy.deepcopy(network).to("meta")  # tied tensors stay tied, and the original as it is
    convolutions = [module for module in shape.modules() if isinstance(module, nn.Conv2d)]
    if not convolutions:
        return []
    weight, channels = convolutions[0].weight, convolutions[0].in_channels
    for convolution in convolutions:
        convolution.register_forward_hook(see)
    with plain_run(shape):
        shape(torch.empty(1, channels, size, size, device="meta", dtype=weight.dtype))
    return seen


def _fitting(network: nn.Module, size: int) -> str | None:
    """Name of the network of ours that fits: of this kind if one does, nearest in size."""
    kind = f"{_name(network)} {type(network).__name__}".lower()
    own_kind = next((names for part, names in OURS.items() if part in kind), ())
    for names in (own_kind, ANY_KIND):
        ours = {name: _on_meta(name) for name in names}
        for name in sorted(names, key=lambda name: _distance(ours[name], network, size)):
            if _trouble(ours[name], size) is None:
                return name
    return None


def _distance(ours: nn.Module, theirs: nn.Module, size: int) -> tuple[float, float]:
    """How far ours is from the images' size, and then from the other's number of parameters."""
    own, others = (sum(p.numel() for p in network.parameters()) for network in (ours, theirs))
    ratio = own / max(1, others)
    return abs(math.log((_published_size(ours) or size) / size)), abs(math.log(ratio))


def _published_size(network: nn.Module) -> int | None:
    """Side of the images that the network was published for, if it says so."""
    size = _published(network).get("input_size")
    return int(size[-1]) if size else None


def _name(network: nn.Module) -> str:
    return str(_published(network).get("architecture", type(network).__name__))


def _published(network: nn.Module) -> dict[str, Any]:
    """The record that timm keeps on a network; empty for other people's networks."""
    record = getattr(network, "pretrained_cfg", None)
    return record if isinstance(record, dict) else {}


def _on_meta(name: str) -> nn.Module:
    """Build a network of shapes alone."""
    with torch.device("meta"):
        return create_model(name)
