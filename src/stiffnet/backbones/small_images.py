"""How timm is told of our networks: their names, and what images they are made for."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import nn

from stiffnet.errors import StepError

CIFAR_MEAN = (0.4914, 0.4822, 0.4465)  # of CIFAR-10's 50,000 training images
CIFAR_STD = (0.2470, 0.2435, 0.2616)
CIFAR_SIZE = 32
STL_SIZE = 96

default_cfgs: dict[str, Any] = {}  # timm looks for this name


class AttachSpelled(Protocol):
    """Attaches what a text such as ``"se,reduction=8"`` says to a network, in place."""

    def __call__(self, model: nn.Module, text: str, *, start: str) -> object:
        """Attach it, at the ``"paper"``'s start or at the ``"identity"``."""


_attach: AttachSpelled | None = None  # the room that attaches comes after this one


def attach_with(attach: AttachSpelled) -> None:
    """Say what serves ``timm.create_model(name, attention=...)``."""
    global _attach
    _attach = attach


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

    timm's call takes ``attention`` too, see `attach_with`. The gates' random numbers begin where
    the backbone's began, so that neither the backbone's weights nor what the caller draws
    afterwards depend on them.

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

    def entry(
        pretrained: bool = False, *, attention: str | None = None, **options: Any
    ) -> nn.Module:
        if attention is not None and _attach is None:
            raise StepError(
                f"Nothing that could attach {attention!r} to {name} was imported yet. Write "
                "`from stiffnet import create_model` first, or call that instead of timm's."
            )
        before = torch.get_rng_state()
        model: nn.Module = build_model_with_cfg(build, name, pretrained, **options)
        if attention is not None and _attach is not None:
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(before)
                _attach(model, attention, start="identity" if pretrained else "paper")
        return model

    entry.__name__ = entry.__qualname__ = name
    entry.__doc__ = summary
    default_cfgs.update(generate_default_cfgs({name: config}))
    register_model(entry)
