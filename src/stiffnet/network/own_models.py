"""Our networks, registered with timm: ``timm.create_model(name)`` builds them.

That call takes ``attention`` too, as `stiffnet.create_model` does.
"""

from collections.abc import Callable
from typing import Any

import torch
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import nn

from stiffnet.backbones import OWN_MODELS as OWN_MODELS
from stiffnet.backbones.own_model import OwnModel
from stiffnet.network.attention_text import attach_text

default_cfgs = generate_default_cfgs(  # timm looks for this name
    {name: own.config for name, own in OWN_MODELS.items()}
)


def _entry(own: OwnModel) -> Callable[..., nn.Module]:
    """Return what timm calls.

    The gates' random numbers begin where the backbone's began, so that neither the backbone's
    weights nor what the caller draws afterwards depend on them.
    """

    def entry(
        pretrained: bool = False, *, attention: str | None = None, **options: Any
    ) -> nn.Module:
        before = torch.get_rng_state()
        model: nn.Module = build_model_with_cfg(own.build, own.name, pretrained, **options)
        if attention is not None:
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(before)
                attach_text(model, attention, start="identity" if pretrained else "paper")
        return model

    entry.__name__ = entry.__qualname__ = own.name
    entry.__doc__ = own.summary
    return entry


for _own in OWN_MODELS.values():
    register_model(_entry(_own))
