"""timm's VGG-19 with batch norms, its head made for the one pixel that 32-pixel images leave.

Simonyan and Zisserman, 2014: "Very deep convolutional networks for large-scale image recognition".
The two hidden layers of 4,096 are kept, as in the CIFAR-100 network whose training settings the
ASR paper's Table 10 has. On larger images they see every pixel of the last map, and the mean of
what they give is classified.
"""

from typing import Any

from timm.models.vgg import VGG, ConvMlp
from torch import nn

from stiffnet.backbones.own_model import OwnModel

LAYERS = [
    *(64, 64, "M"),
    *(128, 128, "M"),
    *(256, 256, 256, 256, "M"),
    *(512, 512, 512, 512, "M"),
    *(512, 512, 512, 512, "M"),
]  # fmt: skip
HIDDEN = 4096


def cifar_vgg(*, drop_rate: float = 0.5, **options: Any) -> VGG:
    """Build timm's network and exchange its 7×7 head, which is built one channel wide, by a 1×1."""
    model = VGG(
        LAYERS,
        **({"norm_layer": nn.BatchNorm2d, "drop_rate": drop_rate} | options),
        mlp_ratio=1 / HIDDEN,
    )
    head = ConvMlp(model.num_features, HIDDEN, kernel_size=1, drop_rate=drop_rate)
    for layer in (head.fc1, head.fc2):
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(layer.bias)
    model.pre_logits = head.to(model.features[0].weight)
    return model


MODELS = [
    OwnModel(
        "vgg19_cifar",
        cifar_vgg,
        "timm's VGG-19 with batch norms and a head for 32-pixel images.",
        first_conv="features.0",
        classifier="head.fc",
        last_map=1,
    )
]
