"""Networks that neither timm nor torchvision has; importing this room registers them with timm.

``timm.create_model(name, attention="se")`` attaches a module too, as `stiffnet.create_model` does,
once that, or anything else that opens networks by name, was imported.
"""

from stiffnet.backbones.cifar_acnet import VARIANTS as CIFAR_ACNETS
from stiffnet.backbones.cifar_mobilenet import MOBILENET
from stiffnet.backbones.cifar_resnet import VARIANTS as CIFAR_RESNETS, CifarResNet as CifarResNet
from stiffnet.backbones.cifar_shufflenet import SHUFFLENET
from stiffnet.backbones.cifar_vgg import VGG19
from stiffnet.backbones.small_images import attach_with as attach_with
from stiffnet.backbones.small_resnet import VARIANTS as SMALL_RESNETS
from stiffnet.backbones.small_vit import VARIANTS as SMALL_VITS
from stiffnet.backbones.stem import stem_warning as stem_warning
from stiffnet.backbones.stepnet_vit import VARIANTS as STEPNET_VITS

OWN_MODELS = (
    *CIFAR_RESNETS,
    *SMALL_RESNETS,
    VGG19,
    MOBILENET,
    SHUFFLENET,
    *SMALL_VITS,
    *STEPNET_VITS,
    *CIFAR_ACNETS,
)
