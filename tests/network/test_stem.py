"""The warning for a stem that is made for larger images."""

import pytest
import timm
import torch
import torchvision
from torch import nn

from stiffnet.errors import UnknownNameError
from stiffnet.network.stem import stem_warning

FITTING = [
    ("resnet20_cifar", 32), ("resnet20_cifar", 8), ("resnet20_cifar", 96), ("resnet18_small", 32),
    ("resnet50_small", 32), ("vgg19_cifar", 32), ("mobilenet_cifar", 32),
    ("shufflenetv2_cifar", 32), ("vit_tiny_cifar", 32), ("vit_tiny_cifar", 96),
    ("vit_tiny_stl", 96), ("acresnet56_cifar", 32), ("resnet50", 224), ("resnet50", 64),
    ("vit_base_patch16_224", 224), ("vit_base_patch16_224", 384), ("torchvision:resnet18", 224),
    ("vgg11", 64), ("mobilenetv3_small_050", 64),  # single pixels, but none of them padded
]  # fmt: skip
UNFIT = [
    ("resnet50", 32, "resnet50 is made for images of 224 pixels: of 32 pixels it leaves one, "
     "where the outer weights of its last kernels see only padding. Use resnet50_small, or "
     "enlarge the images."),
    ("resnet18.a1_in1k", 32, "Use resnet18_small, or enlarge the images."),
    ("torchvision:resnet34", 32, "torchvision:resnet34 is made for larger images: of 32 pixels "),
    ("vit_base_patch16_224", 32, "it cannot be run on 32 pixels (Input height (32) doesn't match "
     "model (224)). Use vit_tiny_cifar, or enlarge the images."),
    ("vit_base_patch16_224", 96, "Use vit_tiny_stl, or enlarge the images."),
    ("mobilenetv1_100", 32, "Use mobilenet_cifar, or enlarge the images."),
    ("convnext_atto", 32, "Use resnet56_cifar, or enlarge the images."),
    ("resnet20_cifar", 4, "see only padding. Enlarge the images."),
]  # fmt: skip


@pytest.mark.parametrize(("name", "size"), FITTING)
def test_a_network_that_fits_gets_no_warning(name, size):
    assert stem_warning(name, size) is None


@pytest.mark.parametrize(("name", "size", "part"), UNFIT)
def test_a_network_for_larger_images_is_named_with_one_that_fits(name, size, part):
    warning = stem_warning(name, size)
    assert warning is not None
    assert part in warning
    assert warning.startswith(name)


@pytest.mark.parametrize(
    ("name", "ours"), [("resnet18", "resnet18_small"), ("resnet101", "resnet50_small")]
)
def test_a_network_in_hand_is_judged_by_its_parameters(name, ours):
    with torch.device("meta"):
        model = torchvision.models.get_model(name)
    assert f"Use {ours}, or enlarge the images." in stem_warning(model, 32)


def test_too_few_patches_are_counted_in_any_precision():
    with torch.device("meta"):
        model = timm.create_model("vit_tiny_patch16_224", dynamic_img_size=True).bfloat16()
    assert "of 32 pixels it makes no more than 2 × 2 patches. Use vit_tiny" in stem_warning(
        model, 32
    )
    assert stem_warning(model, 64) is None


def test_channels_are_the_networks_own():
    model = timm.create_model("resnet18", in_chans=1, num_classes=2)
    assert "Use resnet18_small" in stem_warning(model, 32)


def test_the_network_is_left_as_it_was():
    model = timm.create_model("resnet18", num_classes=2).train()
    model.layer1.eval()
    modes = [m.training for m in model.modules()]
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    values = {name: tensor.clone() for name, tensor in tensors.items()}
    random = torch.get_rng_state()
    assert stem_warning(model, 32) is not None
    assert [m.training for m in model.modules()] == modes
    assert not any(m._forward_hooks for m in model.modules())
    after = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    assert all(after[name] is tensor for name, tensor in tensors.items())
    assert all(torch.equal(after[name], value) for name, value in values.items())
    assert torch.equal(torch.get_rng_state(), random)


def test_a_wrapped_network_is_looked_into():
    wrapped = nn.DataParallel(timm.create_model("resnet18", num_classes=2))
    assert stem_warning(wrapped, 32).startswith("resnet18 ")


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 2)),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(7, 2)),
        nn.Sequential(nn.LazyConv2d(4, 3)),
    ],
    ids=["no convolution", "runs on no image", "not yet built"],
)
@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
def test_where_nothing_can_be_said_nothing_is(model):
    assert stem_warning(model, 32) is None


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("resnet18_smal", "resnet18_small"),
        ("torchvision:resnet19", "torchvision:resnet18"),
        ("resnet18.a2_in1k_", "resnet18.a2_in1k"),
    ],
)
def test_an_unknown_name_is_an_error_with_the_nearest(wrong, nearest):
    with pytest.raises(UnknownNameError, match=f"no model called '{wrong}'.*'{nearest}'"):
        stem_warning(wrong, 32)


def test_what_torchvision_announces_is_not_passed_on():
    assert "cannot be run on 32 pixels" in stem_warning("torchvision:inception_v3", 32)
