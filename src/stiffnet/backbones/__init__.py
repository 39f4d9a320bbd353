"""Networks that neither timm nor torchvision has; `network.own_models` registers them with timm."""

from stiffnet.backbones import (
    cifar_acnet,
    cifar_mobilenet,
    cifar_resnet,
    cifar_shufflenet,
    cifar_vgg,
    small_resnet,
    small_vit,
    stepnet_vit,
    style_transfer,
)
from stiffnet.backbones.own_model import OwnModel

FAMILIES = (
    cifar_resnet,
    small_resnet,
    cifar_vgg,
    cifar_mobilenet,
    cifar_shufflenet,
    small_vit,
    stepnet_vit,
    cifar_acnet,
    style_transfer,
)
OWN_MODELS: dict[str, OwnModel] = {
    model.name: model for family in FAMILIES for model in family.MODELS
}
