"""Networks that neither timm nor torchvision has; importing this room registers them with timm."""

from stiffnet.backbones.cifar_acnet import VARIANTS as CIFAR_ACNETS
from stiffnet.backbones.cifar_mobilenet import MOBILENET
from stiffnet.backbones.cifar_resnet import VARIANTS as CIFAR_RESNETS, CifarResNet as CifarResNet
from stiffnet.backbones.cifar_shufflenet import SHUFFLENET
from stiffnet.backbones.cifar_vgg import VGG19
from stiffnet.backbones.small_resnet import VARIANTS as SMALL_RESNETS
from stiffnet.backbones.small_vit import VARIANTS as SMALL_VITS
from stiffnet.backbones.stem import stem_warning as stem_warning

OWN_MODELS = (
    *CIFAR_RESNETS,
    *SMALL_RESNETS,
    VGG19,
    MOBILENET,
    SHUFFLENET,
    *SMALL_VITS,
    *CIFAR_ACNETS,
)
