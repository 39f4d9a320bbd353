"""VGG-19 for 32-pixel images: torchvision's convolutions, and a head for one pixel."""

import timm
import torch
import torchvision
from torch import nn
from torch.nn import functional

from tolerances import RTOL

PUBLISHED = torchvision.models.VGG19_BN_Weights.DEFAULT.meta["num_params"]


def hidden(inputs):
    return inputs * 4096 + 4096 + 4096 * 4096 + 4096


def test_parameters_are_torchvisions_but_for_the_head():
    with torch.device("meta"):
        model = timm.create_model("vgg19_cifar", num_classes=100)
    convolutions = PUBLISHED - hidden(512 * 7 * 7) - 1000 * 4097
    expected = convolutions + hidden(512) + 100 * 4097
    assert sum(p.numel() for p in model.parameters()) == expected


def test_the_convolutions_have_torchvisions_keys_and_shapes():
    with torch.device("meta"):
        ours = timm.create_model("vgg19_cifar").features.state_dict()
        theirs = torchvision.models.vgg19_bn().features.state_dict()
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items()}


def test_the_head_is_two_hidden_layers_at_every_pixel():
    model = timm.create_model("vgg19_cifar", num_classes=3).double().eval()
    last = model.forward_features(torch.rand(2, 3, 64, 64, dtype=torch.float64))
    assert last.shape == (2, 512, 2, 2)
    pixels = last.permute(0, 2, 3, 1)
    for layer in (model.pre_logits.fc1, model.pre_logits.fc2):
        pixels = functional.linear(pixels, layer.weight[:, :, 0, 0], layer.bias).relu()
    expected = functional.linear(pixels.mean((1, 2)), model.head.fc.weight, model.head.fc.bias)
    given = model.forward_head(last)
    assert (given - expected).abs().max() <= RTOL["float64"] * expected.abs().max()


def test_both_hidden_layers_are_dropped_by_half_unless_told_otherwise():
    for options, rate in (({}, 0.5), ({"drop_rate": 0.1}, 0.1)):
        with torch.device("meta"):
            model = timm.create_model("vgg19_cifar", **options)
        drops = [m.p for m in model.modules() if isinstance(m, nn.Dropout)]
        assert drops == [rate, rate]
