"""ACNet's ResNets for 32-pixel images: 6n+2 layers, each 3×3 convolution with a cross beside it.

Ding, Guo, Ding and Han, 2019: "ACNet: strengthening the kernel skeletons for powerful CNN via
asymmetric convolution blocks". The networks are those of `cifar_resnet`, of basic blocks at every
depth, also at 164, where the plain network has bottlenecks.
"""

from collections import OrderedDict
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from stiffnet.backbones.cifar_resnet import Block, CifarResNet, projection
from stiffnet.backbones.own_model import OwnModel
from stiffnet.errors import FoldError

SHARE = 1 / 3  # initial weight of the norm of each of them, as the authors have it on CIFAR
PARALLEL = ("square", "vertical", "horizontal")


class AsymmetricConv(nn.Module):
    """A 3×3, a 3×1 and a 1×3 convolution of one input, each with a norm of its own, summed.

    In evaluation the sum is a single 3×3 convolution. Its parts are children called `square`,
    `vertical` and `horizontal`, each a `conv` followed by a `norm`.
    """

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.square = _conv_and_norm(inputs, outputs, (3, 3), stride)
        self.vertical = _conv_and_norm(inputs, outputs, (3, 1), stride)
        self.horizontal = _conv_and_norm(inputs, outputs, (1, 3), stride)

    def forward(self, x: Tensor) -> Tensor:
        """Sum the three."""
        total: Tensor = self.square(x) + self.vertical(x) + self.horizontal(x)
        return total

    def fuse(self) -> nn.Conv2d:
        """Return the one convolution that this is in evaluation (timm's convention)."""
        if self.training:
            raise FoldError(
                "An AsymmetricConv in training is not a single convolution: its norms use the "
                "batch. Call `eval()` first."
            )
        joined = (fuse_conv_bn_eval(*getattr(self, name)) for name in PARALLEL)
        made: nn.Conv2d = next(joined)
        others = list(joined)
        assert made.bias is not None
        with torch.no_grad():
            for conv in others:
                rows, columns = (kernel // 2 for kernel in conv.kernel_size)
                made.weight += F.pad(conv.weight, (1 - columns, 1 - columns, 1 - rows, 1 - rows))
                made.bias += conv.bias
        return made


def _conv_and_norm(
    inputs: int, outputs: int, kernel: tuple[int, int], stride: int
) -> nn.Sequential:
    padding = (kernel[0] // 2, kernel[1] // 2)
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
    norm = nn.BatchNorm2d(outputs)
    nn.init.constant_(norm.weight, SHARE)
    return nn.Sequential(OrderedDict(conv=conv, norm=norm))


class AsymmetricBlock(Block):
    """Two asymmetric convolutions, and the activation after the addition."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride)
        self.conv1 = AsymmetricConv(inputs, width, stride)
        self.conv2 = AsymmetricConv(width, width)
        self.shortcut = projection(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Take one step."""
        rate = self.conv2(torch.relu_(self.conv1(x)))
        rate += self.shortcut(x)
        return torch.relu_(rate)


VARIANTS = {f"acresnet{6 * n + 2}_cifar": n for n in (3, 9, 18, 27)}

MODELS = [
    OwnModel(
        name,
        partial(CifarResNet, AsymmetricBlock, blocks, stem=AsymmetricConv),
        f"Three stages of {blocks} AsymmetricBlocks for 32-pixel images.",
        first_conv=tuple(f"conv1.{part}.conv" for part in PARALLEL),
        classifier="fc",
        last_map=8,
    )
    for name, blocks in VARIANTS.items()
]
