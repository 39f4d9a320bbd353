"""ShuffleNetV2 for 32-pixel images: torchvision's network behind a stem that keeps every pixel."""

import timm
import torch
import torchvision

PUBLISHED = torchvision.models.ShuffleNet_V2_X1_0_Weights.DEFAULT.meta["num_params"]


def test_parameters_are_torchvisions_but_for_the_classes():
    with torch.device("meta"):
        model = timm.create_model("shufflenetv2_cifar", num_classes=100)
    assert sum(p.numel() for p in model.parameters()) == PUBLISHED - 900 * 1025


def test_the_function_is_torchvisions_without_the_stems_strides():
    ours = timm.create_model("shufflenetv2_cifar", num_classes=3).double().eval()
    theirs = torchvision.models.shufflenet_v2_x1_0(num_classes=3).double().eval()
    theirs.load_state_dict(ours.state_dict(), strict=True)
    theirs.conv1[0].stride = (1, 1)
    theirs.maxpool = torch.nn.Identity()
    images = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    assert torch.equal(ours(images), theirs(images))


def test_the_maps_shrink_eightfold():
    with torch.device("meta"):
        model = timm.create_model("shufflenetv2_cifar")
        last = model.forward_features(torch.empty(1, 3, 32, 32))
        assert model.conv1(torch.empty(1, 3, 32, 32)).shape == (1, 24, 32, 32)
    assert last.shape == (1, 1024, 4, 4)
