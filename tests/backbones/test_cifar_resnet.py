"""The CIFAR ResNets: the published sizes, and what timm asks of a model."""

import pytest
import timm
import torch

from stiffnet.backbones.cifar_acnet import AsymmetricBlock
from stiffnet.backbones.cifar_resnet import (
    VARIANTS as CIFAR_RESNETS,
    BasicBlock,
    Bottleneck,
    PreActBottleneck,
)
from stiffnet.trajectory.steps import steps

PARAMETERS = {  # with 10 classes, from the authors' code and by hand
    "resnet20_cifar": 272_474,
    "resnet32_cifar": 466_906,
    "resnet56_cifar": 855_770,
    "resnet110_cifar": 1_730_714,
    "resnet83_cifar": 869_530,
    "resnet164_cifar": 1_704_154,
    "resnet245_cifar": 2_538_778,
    "preresnet164_cifar": 1_703_258,
}


def on_meta(name, **options):
    with torch.device("meta"):
        return timm.create_model(name, **options)


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_number_of_parameters_is_the_published_one(name):
    assert sum(p.numel() for p in on_meta(name).parameters()) == PARAMETERS[name]


def test_a_hundred_classes_cost_the_head_alone():
    assert (
        sum(p.numel() for p in on_meta("resnet164_cifar", num_classes=100).parameters())
        == 1_727_284
    )
    assert (
        sum(p.numel() for p in on_meta("preresnet164_cifar", num_classes=100).parameters())
        == 1_726_388
    )


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if "245" in n else n for n in CIFAR_RESNETS],
)
def test_there_is_a_step_a_block_in_three_stages(name):
    found = steps(on_meta(name), torch.empty(1, 3, 32, 32, device="meta"))
    depth = int("".join(c for c in name if c.isdigit()))
    basic = found[-1].shape[0] == 64
    assert len(found) == (depth - 2) // (2 if basic else 3)
    assert [s.stage for s in found] == sorted(s.stage for s in found)
    assert found[-1].stage == 2
    assert sum(s.counted for s in found) == len(found) - 3
    width = 1 if basic else 4
    assert found[0].shape == (16 * width, 32, 32)
    assert found[-1].shape == (64 * width, 8, 8)


@pytest.mark.parametrize("name", ["resnet20_cifar", "resnet29_cifar", "preresnet29_cifar"])
def test_every_parameter_receives_a_gradient(name):
    model = timm.create_model(name, num_classes=3, in_chans=1)
    model(torch.rand(2, 1, 32, 32)).square().sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("size", [8, 32, 96])
def test_any_image_size_works(size):
    model = timm.create_model("resnet20_cifar", num_classes=3).eval()
    assert model(torch.rand(2, 3, size, size)).shape == (2, 3)


def test_the_classifier_can_be_replaced_and_left_out():
    model = timm.create_model("resnet20_cifar", num_classes=3)
    assert model.get_classifier().out_features == 3
    model.reset_classifier(5)
    assert model(torch.rand(1, 3, 32, 32)).shape == (1, 5)
    bare = timm.create_model("resnet20_cifar", num_classes=0)
    assert bare(torch.rand(1, 3, 32, 32)).shape == (1, 64)


@pytest.mark.parametrize("training", [False, True], ids=["evaluating", "training"])
@pytest.mark.parametrize("block", [BasicBlock, Bottleneck, PreActBottleneck, AsymmetricBlock])
def test_a_step_works_in_place_on_its_own_values_only(block, training):
    torch.manual_seed(0)
    state = torch.randn(2, 4 * block.expansion, 5, 5)
    before = state.clone()
    step = block(4 * block.expansion, 4, 1).train(training)
    after = step(state)
    assert torch.equal(state, before)
    assert after.data_ptr() != state.data_ptr()
    assert not torch.equal(after, before)
