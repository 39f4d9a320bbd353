"""Small networks of many families to attach to, and what must not change about them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import timm
import torch
import torchvision
from torch import nn

import stiffnet.backbones as backbones
import stiffnet.network.own_models  # noqa: F401 - registers our networks with timm


class Case(NamedTuple):
    """A network, the size of its images, and its number of steps."""

    label: str
    build: Callable[[], nn.Module]
    size: int
    steps: int


def of_timm(name: str, size: int, steps: int, **options: Any) -> Case:
    return Case(name, lambda: timm.create_model(name, num_classes=4, **options), size, steps)


def of_torchvision(name: str, size: int, steps: int, **options: Any) -> Case:
    def build() -> nn.Module:
        return torchvision.models.get_model(name, num_classes=4, **options)

    return Case(f"torchvision:{name}", build, size, steps)


assert "resnet20_cifar" in backbones.OWN_MODELS

FAST = [
    of_timm("resnet20_cifar", 16, 9),
    of_timm("resnet18", 32, 8),
    of_timm("mobilenetv3_small_050", 32, 7),
    of_timm("regnetx_002", 32, 13),
    of_timm("dla46x_c", 32, 12),  # a state that comes in as an argument, or does not
    of_timm("convnext_atto", 32, 4, depths=(1, 1, 1, 1), dims=(8, 16, 24, 32)),
    of_timm("vit_tiny_patch16_224", 32, 4, img_size=32, depth=2, embed_dim=48),
    of_timm(
        "swin_tiny_patch4_window7_224", 32, 4,
        img_size=32, window_size=4, embed_dim=12, depths=(1, 1), num_heads=(1, 2),
    ),
    of_torchvision("resnet18", 32, 8),
]  # fmt: skip

SWEEP = [
    of_timm("resnet51q", 64, 16),
    of_timm("cait_xxs24_224", 224, 51),
    of_timm("convit_tiny", 224, 24),
    of_timm("convnext_zepto_rms", 64, 10),
    of_timm("crossvit_tiny_240", 240, 36),
    of_timm("cs3darknet_focus_s", 64, 9),
    of_timm("deit_tiny_patch16_224", 224, 24),
    of_timm("edgenext_xx_small", 64, 15),
    of_timm("mobilenetv2_035", 64, 10),
    of_timm("efficientvit_m0", 224, 38),
    of_timm("fasternet_t0", 64, 13),
    of_timm("fastvit_t8", 64, 10),
    of_timm("focalnet_tiny_srf", 64, 24),
    of_timm("gcvit_xxtiny", 224, 35),
    of_timm("ghostnet_050", 64, 16),
    of_timm("hardcorenas_b", 64, 12),
    of_timm("hrnet_w18_small", 64, 23),
    of_timm("inception_next_atto", 64, 12),
    of_timm("levit_128s", 224, 20),
    of_timm("mambaout_femto", 64, 18),
    of_timm("poolformerv2_s12", 64, 24),
    of_timm("gmlp_ti16_224", 224, 30),
    of_timm("mobilevit_xxs", 64, 21),
    of_timm("nf_regnet_b0", 64, 16),
    of_timm("pit_ti_224", 224, 24),
    of_timm("pvt_v2_b0", 64, 16),
    of_timm("repghostnet_050", 64, 16),
    of_timm("repvit_m1", 64, 26),
    of_timm("res2next50", 64, 16),
    of_timm("resnest26d", 64, 8),
    of_timm("resnetv2_18", 64, 8),
    of_timm("legacy_seresnet18", 64, 8),
    of_timm("shvit_s1", 64, 39),
    of_timm("skresnet18", 64, 8),
    of_timm("starnet_s050", 64, 6),
    of_timm("swiftformer_xs", 64, 28),
    of_timm("swinv2_cr_tiny_224", 224, 24),
    of_timm("xcit_nano_12_p8_224", 64, 40),
    of_torchvision("resnext50_32x4d", 64, 16),
    of_torchvision("wide_resnet50_2", 64, 16),
    of_torchvision("convnext_tiny", 64, 18),
    of_torchvision("efficientnet_b0", 64, 9),
    of_torchvision("efficientnet_v2_s", 64, 35),
    of_torchvision("mobilenet_v2", 64, 10),
    of_torchvision("mobilenet_v3_small", 64, 6),
    of_torchvision("mnasnet0_5", 64, 10),
    of_torchvision("regnet_x_400mf", 64, 22),
    of_torchvision("regnet_y_400mf", 64, 16),
    of_torchvision("swin_t", 64, 24),
    of_torchvision("swin_v2_t", 64, 24),
    of_torchvision("vit_b_16", 32, 24, image_size=32),
    of_torchvision("maxvit_t", 224, 55),
]


def network(case: Case) -> nn.Module:
    """Build a network in evaluation mode, with no weight left at zero."""
    torch.manual_seed(0)
    model = case.build().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.02)
    return model


def images(case: Case, samples: int = 2) -> torch.Tensor:
    return torch.rand(samples, 3, case.size, case.size, generator=torch.Generator().manual_seed(1))


def anatomy(model: nn.Module) -> list[tuple[object, ...]]:
    """Everything about the modules of a network that attaching must give back."""
    return [
        (name, id(module), type(module), module.training, sorted(module.__dict__),
         list(module._modules), list(module._parameters), list(module._buffers),
         list(module._forward_hooks.values()), list(module._forward_pre_hooks.values()))
        for name, module in model.named_modules()
    ]  # fmt: skip


def scaled(one: torch.Tensor, other: torch.Tensor) -> float:
    """Largest difference over the largest entry."""
    return float((one - other).detach().abs().max() / other.detach().abs().max())
