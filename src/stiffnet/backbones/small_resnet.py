"""timm's ResNet-18, 34 and 50 behind a stem for small images: 3×3, and the max-pool kept.

A 32-pixel image is a state of 64 × 16 × 16 after the stem, as in the Jacobian sizes of
"Block-level stiffness analysis of residual networks", Tables 10 and 11. All keys are those of
timm's and torchvision's networks, and all shapes but the first convolution's. The last norm of a
branch starts at one, as in torchvision: at timm's zero no step would move the state.
"""

from functools import partial
from typing import Any

from timm.models.resnet import BasicBlock, Bottleneck, ResNet
from torch import nn

from stiffnet.backbones.own_model import OwnModel

VARIANTS = {
    "resnet18_small": (BasicBlock, (2, 2, 2, 2)),
    "resnet34_small": (BasicBlock, (3, 4, 6, 3)),
    "resnet50_small": (Bottleneck, (3, 4, 6, 3)),
}


def small_resnet(block: type[nn.Module], layers: tuple[int, ...], **options: Any) -> ResNet:
    """Build timm's network and exchange its first convolution."""
    model = ResNet(block, layers, **({"zero_init_last": False} | options))
    large = model.conv1
    model.conv1 = nn.Conv2d(large.in_channels, large.out_channels, 3, padding=1, bias=False)
    model.conv1.to(large.weight)
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    for info in model.feature_info:
        info["reduction"] //= 2
    return model


MODELS = [
    OwnModel(
        name,
        partial(small_resnet, block, layers),
        f"timm's ResNet with {sum(layers)} {block.__name__}s and a stem for 32-pixel images.",
        first_conv="conv1",
        classifier="fc",
        last_map=2,
    )
    for name, (block, layers) in VARIANTS.items()
]
