"""ResNet-18, 34 and 50 for small images: torchvision's networks behind another stem."""

import math

import pytest
import timm
import torch
import torchvision
from torch import nn

from stiffnet.backbones.small_resnet import VARIANTS
from stiffnet.trajectory.steps import steps

# "Block-level stiffness analysis of residual networks", Tables 10 and 11, column of Jacobian
# elements, by block; the last figure of each is the printed total.
JACOBIAN_ELEMENTS = {
    "resnet18_small": (
        *(268435456, 268435456, 134217728, 67108864, 33554432, 16777216, 8388608, 4194304),
        801112064,
    ),
    "resnet34_small": (
        *(268435456, 268435456, 268435456, 134217728, 67108864, 67108864, 67108864, 33554432),
        *(16777216, 16777216, 16777216, 16777216, 16777216, 8388608, 4194304, 4194304),
        1275068416,
    ),
}
MILLIONS = {  # with 10 classes, of the public CIFAR-10 networks with this stem
    "resnet18_small": 11.174, "resnet34_small": 21.282, "resnet50_small": 23.521,
}  # fmt: skip
FULL = [name for name in VARIANTS if not name.endswith("_025")]
LARGE_STEM, SMALL_STEM = 7 * 7 * 3 * 64, 3 * 3 * 3 * 64


def on_meta(name, **options):
    with torch.device("meta"):
        return timm.create_model(name, **options)


def torchvisions(name, **options):
    return torchvision.models.get_model(name.removesuffix("_small"), **options)


def steps_of(name):
    return steps(on_meta(name), torch.empty(1, 3, 32, 32, device="meta"))


def entries(shape):
    return math.prod(shape)


@pytest.mark.parametrize("name", JACOBIAN_ELEMENTS)
def test_the_jacobians_have_the_printed_number_of_elements(name):
    sizes = [entries(step.shape) for step in steps_of(name)]
    before = [64 * 16 * 16, *sizes[:-1]]
    elements = [out * into for out, into in zip(sizes, before, strict=True)]
    assert (*elements, sum(elements)) == JACOBIAN_ELEMENTS[name]


@pytest.mark.parametrize("name", VARIANTS)
def test_the_stem_leaves_its_maps_of_16_by_16(name):
    model = on_meta(name)
    seen = []
    model.maxpool.register_forward_hook(lambda m, args, out: seen.append(out.shape[1:]))
    model(torch.empty(1, 3, 32, 32, device="meta"))
    assert seen == [(16 if name.endswith("_025") else 64, 16, 16)]


@pytest.mark.parametrize(("name", "first"), [("resnet18_small", 64), ("resnet50_small", 256)])
def test_there_is_a_step_a_block_in_four_stages(name, first):
    found = steps_of(name)
    blocks = VARIANTS[name][1]
    assert [step.stage for step in found] == [s for s, n in enumerate(blocks) for _ in range(n)]
    assert sum(step.counted for step in found) == sum(blocks) - 4
    shapes = [(first, 16, 16), (2 * first, 8, 8), (4 * first, 4, 4), (8 * first, 2, 2)]
    assert [step.shape for step in found] == [shapes[step.stage] for step in found]


@pytest.mark.parametrize("name", FULL)
def test_parameters_are_torchvisions_but_for_the_stem_and_the_classes(name):
    model = on_meta(name)
    published = torchvision.models.get_model_weights(name.removesuffix("_small")).DEFAULT.meta
    expected = published["num_params"] - LARGE_STEM + SMALL_STEM - 990 * (model.num_features + 1)
    count = sum(p.numel() for p in model.parameters())
    assert count == expected
    assert round(count / 1e6, 3) == MILLIONS[name]


@pytest.mark.parametrize("name", FULL)
def test_keys_and_shapes_are_torchvisions_but_for_the_stem(name):
    with torch.device("meta"):
        theirs = torchvisions(name, num_classes=10).state_dict()
    ours = on_meta(name).state_dict()
    assert ours.keys() == theirs.keys()
    different = [key for key in ours if ours[key].shape != theirs[key].shape]
    assert different == ["conv1.weight"]


@pytest.mark.parametrize("name", FULL)
def test_a_quarter_of_the_width_is_a_quarter_of_every_channel(name):
    whole, quarter = on_meta(name).state_dict(), on_meta(f"{name}_025").state_dict()
    assert whole.keys() == quarter.keys()
    kept = {"conv1.weight": [1], "fc.weight": [0], "fc.bias": [0]}  # colours and classes
    for key, values in whole.items():
        narrow = [axis for axis in range(2) if axis not in kept.get(key, [])]
        expected = [n // 4 if axis in narrow else n for axis, n in enumerate(values.shape)]
        assert list(quarter[key].shape) == expected, key


@pytest.mark.parametrize("name", ["resnet18_small", "resnet50_small"])
def test_the_function_is_torchvisions_behind_the_small_stem(name):
    theirs = torchvisions(name, num_classes=3)
    theirs.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    ours = timm.create_model(name, num_classes=3).double().eval()
    theirs.double().eval().load_state_dict(ours.state_dict())
    images = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    assert torch.equal(ours(images), theirs(images))


@pytest.mark.parametrize("name", VARIANTS)
def test_a_fresh_network_moves_its_state(name):
    norms = [m for m in timm.create_model(name).modules() if isinstance(m, nn.BatchNorm2d)]
    assert all((norm.weight == 1).all() for norm in norms)


def test_the_features_are_as_small_as_they_are_said_to_be():
    model = timm.create_model("resnet18_small", features_only=True)
    maps = model(torch.rand(1, 3, 32, 32))
    assert [32 // m.shape[-1] for m in maps] == model.feature_info.reduction() == [1, 2, 4, 8, 16]
