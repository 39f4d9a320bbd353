"""timm's ResNet-18, 34 and 50 behind a stem for small images: 3×3, and the max-pool kept.

A 32-pixel image is a state of 64 × 16 × 16 after the stem, as in the Jacobian sizes of
"Block-level stiffness analysis of residual networks", Tables 10 and 11. All keys are those of
timm's and torchvision's networks, and all shapes but the first convolution's. The last norm of a
branch starts at one, as in torchvision: at timm's zero no step would move the state. Those called
`_025` have a quarter of the channels, for machines on which the others take too long.
"""

from functools import partial
from typing import Any

from timm.models.resnet import BasicBlock, Bottleneck, ResNet
from torch import nn

from stiffnet.backbones.own_model import OwnModel

VARIANTS = {
    "resnet18_small": (BasicBlock, (2, 2, 2, 2), 64),
    "resnet34_small": (BasicBlock, (3, 4, 6, 3), 64),
    "resnet50_small": (Bottleneck, (3, 4, 6, 3), 64),
    "resnet18_small_025": (BasicBlock, (2, 2, 2, 2), 16),
    "resnet34_small_025": (BasicBlock, (3, 4, 6, 3), 16),
    "resnet50_small_025": (Bottleneck, (3, 4, 6, 3), 16),
}


def small_resnet(
    block: type[nn.Module],
    layers: tuple[int, ...],
    width: int,
    *,
    in_chans: int = 3,
    **options: Any,
) -> ResNet:
    """Build timm's network and exchange its first convolution.

    timm has a stem of another width than 64 only as its deep one, whose three convolutions the
    small one replaces.
    """
    own = {"zero_init_last": False, "channels": tuple(width * 2**stage for stage in range(4))}
    if width != 64:
        own |= {"stem_type": "deep", "stem_width": width // 2}
    model = ResNet(block, layers, in_chans=in_chans, **(own | options))
    like = model.bn1.weight
    model.conv1 = nn.Conv2d(in_chans, width, 3, padding=1, bias=False).to(like)
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    for info in model.feature_info:
        info["reduction"] //= 2
    return model


MODELS = [
    OwnModel(
        name,
        partial(small_resnet, block, layers, width),
        f"timm's ResNet with {sum(layers)} {block.__name__}s and a stem for 32-pixel images"
        + ("." if width == 64 else ", at a quarter of its width."),
        first_conv="conv1",
        classifier="fc",
        last_map=2,
    )
    for name, (block, layers, width) in VARIANTS.items()
]
