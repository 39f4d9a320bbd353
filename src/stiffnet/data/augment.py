"""Random crops and flips of whole batches, drawn from a generator that the caller owns."""

import torch
from torch import Tensor
from torch.nn import functional as F


def crop_and_flip(images: Tensor, generator: torch.Generator, *, padding: int = 4) -> Tensor:
    """Shift each image by up to `padding` pixels (zeros come in) and mirror half of them."""
    count, _, height, width = images.shape
    rows, columns = torch.randint(0, 2 * padding + 1, (2, count, 1), generator=generator)
    mirrored = torch.rand(count, generator=generator) < 0.5
    across = torch.arange(width).expand(count, -1)
    across = torch.where(mirrored[:, None], across.flip(1), across)
    padded = F.pad(images, (padding,) * 4).permute(0, 2, 3, 1)
    sample = torch.arange(count)[:, None, None]
    down = (torch.arange(height) + rows)[:, :, None]
    return padded[sample, down, (across + columns)[:, None, :]].permute(0, 3, 1, 2).contiguous()
