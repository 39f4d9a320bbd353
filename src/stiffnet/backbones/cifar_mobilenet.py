"""timm's MobileNet (v1) for 32-pixel images: the stem keeps every pixel, and ReLU is not cut off.

Howard and others, 2017: "MobileNets: efficient convolutional neural networks for mobile vision
applications".
"""

from typing import Any

from timm.models._efficientnet_builder import decode_arch_def
from timm.models.efficientnet import EfficientNet

from stiffnet.backbones.own_model import OwnModel

STAGES = (  # blocks, stride of the first, width
    (1, 1, 64),
    (2, 2, 128),
    (2, 2, 256),
    (6, 2, 512),
    (2, 2, 1024),
)


def cifar_mobilenet(**options: Any) -> EfficientNet:
    """Build timm's network, whose stem has a stride of 2, and take that stride away."""
    stages = decode_arch_def([[f"dsa_r{n}_k3_s{stride}_c{c}"] for n, stride, c in STAGES])
    model = EfficientNet(stages, num_features=0, **options)
    model.conv_stem.stride = (1, 1)
    for info in model.feature_info:
        info["reduction"] //= 2
    return model


MODELS = [
    OwnModel(
        "mobilenet_cifar",
        cifar_mobilenet,
        "timm's MobileNet v1 for 32-pixel images.",
        first_conv="conv_stem",
        classifier="classifier",
        last_map=2,
    )
]
