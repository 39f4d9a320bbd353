"""Images mixed in pairs, and their labels in the same shares: mixup and CutMix of torchvision.

torchvision mixes each image of a batch with its neighbour, with one share drawn for the batch. The
numbers come from torch's generator, which the loop sets by seed, step and rank, so that a resumed
run draws what an unbroken one does.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torchvision.transforms import v2


def mixings(mixup: float, cutmix: float) -> list[v2.Transform]:
    """Return what may be done to a batch, by the parameters α of their beta distributions.

    Where both are above zero, every batch is mixed in one of the two ways, at random.
    """
    kinds = ((v2.MixUp, mixup), (v2.CutMix, cutmix))
    return [kind(alpha=alpha) for kind, alpha in kinds if alpha > 0]


def mix(images: Tensor, ways: Sequence[v2.Transform]) -> tuple[Tensor, Tensor]:
    """Mix a batch in one of some ways.

    Returns:
        The mixed images, in the memory format of those given, and the (images, images) shares: row
        i says how much of each given image is in the mixed image i, and sums to one.
    """
    own = torch.eye(len(images), dtype=torch.float32, device=images.device)
    way = ways[int(torch.randint(len(ways), ()))] if len(ways) > 1 else ways[0]
    mixed, shares = way(images, own)
    if images.is_contiguous(memory_format=torch.channels_last):  # which CUDA's roll undoes
        mixed = mixed.contiguous(memory_format=torch.channels_last)
    return mixed, shares
