"""MobileNet v1 for 32-pixel images: the published layers, without the first stride."""

import timm
import torch
from torch import nn

# The published table of layers: what each depthwise-separable pair turns into what.
PAIRS = [
    (32, 64), (64, 128), (128, 128), (128, 256), (256, 256), (256, 512), *[(512, 512)] * 5,
    (512, 1024), (1024, 1024),
]  # fmt: skip


def test_parameters_are_those_of_the_published_layers():
    with torch.device("meta"):
        model = timm.create_model("mobilenet_cifar", num_classes=100)
    stem = 27 * 32 + 2 * 32
    pairs = sum(9 * i + 2 * i + i * o + 2 * o for i, o in PAIRS)
    assert sum(p.numel() for p in model.parameters()) == stem + pairs + 1025 * 100


def test_timms_weights_fit():
    with torch.device("meta"):
        ours = timm.create_model("mobilenet_cifar").state_dict()
        theirs = timm.create_model("mobilenetv1_100", num_classes=10).state_dict()
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items()}


def test_the_maps_shrink_sixteenfold_and_nothing_is_cut_off_at_six():
    with torch.device("meta"):
        model = timm.create_model("mobilenet_cifar")
        x = model.conv_stem(torch.empty(1, 3, 32, 32))
        sides = [x.shape[-1]]
        for stage in model.blocks:
            x = stage(x)
            sides.append(x.shape[-1])
    assert sides == [32, 32, 16, 8, 4, 2]
    assert [32 // info["reduction"] for info in model.feature_info] == sides[1:]
    assert not any(isinstance(m, nn.ReLU6) for m in model.modules())
