"""Networks that neither timm nor torchvision has; importing this room registers them with timm."""

from stiffnet.backbones.cifar_resnet import VARIANTS as CIFAR_RESNETS, CifarResNet as CifarResNet

OWN_MODELS = tuple(CIFAR_RESNETS)
