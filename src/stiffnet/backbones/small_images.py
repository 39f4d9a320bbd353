"""How timm is told of our networks: their names, and what images they are made for."""

from collections.abc import Callable
from typing import Any

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import nn

CIFAR_MEAN = (0.4914, 0.4822, 0.4465)  # of CIFAR-10's 50,000 training images
CIFAR_STD = (0.2470, 0.2435, 0.2616)
CIFAR_SIZE = 32
STL_SIZE = 96

default_cfgs: dict[str, Any] = {}  # timm looks for this name


def register(
    name: str,
    build: Callable[..., nn.Module],
    summary: str,
    *,
    first_conv: str | tuple[str, ...],
    classifier: str,
    last_map: int | None,
    size: int = CIFAR_SIZE,
) -> None:
    """Let ``timm.create_model(name)`` call `build`, which is made for images of `size` pixels.

    Args:
        name: What users write.
        build: Takes ``num_classes``, ``in_chans`` and whatever else its network takes.
        summary: One sentence on the network.
        first_conv: Path of the convolution, or convolutions, that see the image.
        classifier: Path of the linear layer that gives the logits.
        last_map: Side of the map that is pooled at the end; None if there is none.
        size: Side of the images.
    """
    config = {
        "num_classes": 10,
        "input_size": (3, size, size),
        "pool_size": None if last_map is None else (last_map, last_map),
        "crop_pct": 1.0,
        "interpolation": "bilinear",
        "mean": CIFAR_MEAN,
        "std": CIFAR_STD,
        "first_conv": first_conv,
        "classifier": classifier,
    }

    def entry(pretrained: bool = False, **options: Any) -> nn.Module:
        model: nn.Module = build_model_with_cfg(build, name, pretrained, **options)
        return model

    entry.__name__ = entry.__qualname__ = name
    entry.__doc__ = summary
    default_cfgs.update(generate_default_cfgs({name: config}))
    register_model(entry)
