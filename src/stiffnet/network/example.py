"""A batch to look at a network with, where the user gave none."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.errors import StepError
from stiffnet.trajectory.wrappers import plain_run

SAMPLES = 2
SIZES = (32, 64, 224)
"""Heights and widths that are tried in turn where the network does not say its own."""
FRAMES = 16


def example_for(model: nn.Module) -> Tensor:
    """Make a batch that the network takes, of the size that it says or else a small one."""
    tried = []
    for shape in _shapes(model):
        like = next(p for p in model.parameters() if p.is_floating_point())
        made = torch.rand(SAMPLES, *shape, generator=torch.Generator().manual_seed(0))
        batch = made.to(like.device, like.dtype)
        try:
            with plain_run(model):
                model(batch)
        except Exception:  # the wrong size: whatever the network raises
            tried.append("×".join(map(str, shape)))
        else:
            return batch
    looked = f"It takes none of {', '.join(tried)}." if tried else "It has no convolution."
    raise StepError(
        f"No example could be made for {type(model).__name__}. {looked} "
        "Give one batch as `example=`."
    )


def _shapes(model: nn.Module) -> Iterator[tuple[int, ...]]:
    """Shapes of one image, likely ones first."""
    for source in ("pretrained_cfg", "default_cfg"):
        size = _entry(getattr(model, source, None), "input_size")
        if size is not None:
            yield tuple(size)
    conv = next((m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Conv3d)), None)
    if conv is None:
        return
    frames = (FRAMES,) if isinstance(conv, nn.Conv3d) else ()
    built_for = _entry(getattr(model, "patch_embed", None), "img_size")
    if isinstance(built_for, tuple):
        yield (conv.in_channels, *frames, *built_for)
    own = getattr(model, "image_size", None)
    for side in (own, *SIZES) if isinstance(own, int) else SIZES:
        yield (conv.in_channels, *frames, side, side)


def _entry(config: Any, name: str) -> Any:
    return config.get(name) if isinstance(config, dict) else getattr(config, name, None)
