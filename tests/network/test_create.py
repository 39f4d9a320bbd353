"""Laws of building a network: by name, deterministic, and leaving the caller alone."""

import pytest
import torch
from torch import nn

from stiffnet.backbones.own_model import CIFAR_MEAN
from stiffnet.data.images import Preparation
from stiffnet.errors import (
    CheckpointError,
    UnknownNameError,
)
from stiffnet.network.create import create_model
from stiffnet.network.model_names import is_model_name
from stiffnet.network.open import open_model
from stiffnet.network.pretrained import preparation_of

TINY = "resnet20_cifar"
TINY_TORCHVISION = "torchvision:squeezenet1_1"


def assert_same(model, other):
    state, expected = model.state_dict(), other.state_dict()
    assert state.keys() == expected.keys()
    for name in state:
        assert torch.equal(state[name], expected[name]), name


@pytest.mark.parametrize("name", [TINY, TINY_TORCHVISION])
def test_random_weights_depend_on_the_seed_alone(name):
    first = create_model(name, num_classes=3, seed=1)
    torch.rand(7)
    assert_same(create_model(name, num_classes=3, seed=1), first)
    other = create_model(name, num_classes=3, seed=2)
    assert not all(
        torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True)
    )


@pytest.mark.parametrize("name", [TINY, TINY_TORCHVISION])
def test_the_caller_keeps_its_random_numbers(name):
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    open_model(name, num_classes=3)
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.parametrize("name", [TINY, TINY_TORCHVISION])
def test_the_number_of_classes_is_the_number_of_logits(name):
    opened = open_model(name, num_classes=3)
    channels, _, _ = opened.preparation.input_size
    assert opened.model(torch.zeros(2, channels, 32, 32)).shape == (2, 3)
    assert not opened.model.training
    assert (opened.name, opened.form, opened.classes) == (name, "train", ())
    assert opened.made_by == {"weights": "random", "seed": 0}


def test_one_channel_is_normalised_by_the_mean_of_three():
    opened = open_model(TINY, in_chans=1)
    assert opened.preparation.input_size == (1, 32, 32)
    three = preparation_of(create_model(TINY), TINY)
    assert opened.preparation.mean == pytest.approx((sum(three.mean) / 3,))
    assert opened.model(torch.zeros(1, 1, 32, 32)).shape == (1, 10)


def test_preparations_are_those_of_the_publishers():
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    nothing = nn.Identity()
    assert preparation_of(nothing, "torchvision:resnet18") == Preparation(
        (3, 224, 224), mean, std, crop=224 / 256
    )
    assert preparation_of(nothing, "torchvision:vit_h_14").input_size == (3, 518, 518)
    assert preparation_of(create_model(TINY), TINY).mean == CIFAR_MEAN


@pytest.mark.parametrize("name", ["torchvision:inception_v3", "torchvision:googlenet"])
def test_nothing_is_announced(name):
    assert isinstance(create_model(name, num_classes=2), nn.Module)  # warnings are errors here


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("resnet20_cifr", "Did you mean 'resnet20_cifar'"),
        ("torchvision:resnt18", "Did you mean 'torchvision:resnet18'"),
        ("resnet18.tv_in1", "Did you mean 'resnet18.tv_in1k'"),
        ("zzzzqqqq", "`stiffnet list models` lists them all"),
        ("torchvision:raft_small", "There is no model"),
        ("hf-hub:timm/resnet18.a1_in1k", "There is no model"),
        ("resnet18.hf-hub:timm/resnet18", "There is no model"),
        ("local-dir:/tmp", "There is no model"),
        ("", "There is no model"),
    ],
)
def test_an_unknown_name_gets_the_nearest_ones(name, match):
    with pytest.raises(UnknownNameError, match=match):
        create_model(name)


def test_a_known_tag_is_known():
    assert is_model_name("resnet18.tv_in1k")
    assert not is_model_name("resnet18.")


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        (TINY, {"num_classes": 0}, "`num_classes` is 0"),
        (TINY, {"in_chans": -1}, "`in_chans` is -1"),
        ("torchvision:resnet18", {"in_chans": 1}, "grey images are repeated"),
        ("torchvision:resnet18", {"num_classes": 7, "pretrained": True}, "have 1000 classes"),
    ],
)
def test_impossible_options_are_refused(name, options, match):
    with pytest.raises(CheckpointError, match=match):
        create_model(name, **options)
