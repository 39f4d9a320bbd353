"""What holds for every network of ours: what timm asks, any classes, channels and image size."""

from functools import cache

import pytest
import timm
import torch
from torch import nn

import stiffnet
from stiffnet.backbones import FAMILIES, OWN_MODELS
from stiffnet.errors import StepError
from stiffnet.trajectory.steps import steps
from tolerances import RTOL

WITHOUT_STEPS = ("vgg19_cifar", "mobilenet_cifar", "shufflenetv2_cifar")
SHALLOW = (  # one of each kind
    "resnet20_cifar", "resnet29_cifar", "preresnet29_cifar", "resnet18_small", "resnet50_small",
    "vgg19_cifar", "mobilenet_cifar", "shufflenetv2_cifar", "vit_tiny_cifar", "vit_tiny_stl",
    "vit_tiny_stepnet_cifar", "acresnet56_cifar",
)  # fmt: skip

EVERY = [  # the others differ from one of these in length only
    name if name in SHALLOW else pytest.param(name, marks=pytest.mark.slow)
    for name, own in OWN_MODELS.items()
    if own.classifier
]


def on_meta(name, **options):
    with torch.device("meta"):
        return timm.create_model(name, **options)


def size_of(name):
    return 96 if name.endswith("_stl") else 32


@cache
def last_state(name):
    """What is handed to the head, as a shape without values."""
    image = torch.empty(2, 3, size_of(name), size_of(name), device="meta")
    return on_meta(name).forward_features(image)


def parameters(model):
    return sum(p.numel() for p in model.parameters())


def test_the_table_is_what_timm_was_told():
    assert set(OWN_MODELS) == set(timm.list_models(module="own_models"))
    assert sum(len(family.MODELS) for family in FAMILIES) == len(OWN_MODELS)


@pytest.mark.parametrize("name", EVERY)
def test_the_record_says_what_the_network_is(name):
    model, last = on_meta(name), last_state(name)
    config = model.pretrained_cfg
    assert config["architecture"] == name
    assert config["input_size"] == (3, size_of(name), size_of(name))
    assert config["mean"] == (0.4914, 0.4822, 0.4465)
    assert config["std"] == (0.2470, 0.2435, 0.2616)
    assert config["pool_size"] == (last.shape[-2:] if last.ndim == 4 else None)
    assert model.get_submodule(config["classifier"]) is model.get_classifier()
    assert model.get_classifier().out_features == model.num_classes == config["num_classes"] == 10
    first = config["first_conv"]
    named = [model.get_submodule(n) for n in ((first,) if isinstance(first, str) else first)]
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert named == [m for m in convolutions if m.in_channels == 3]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(("size", "images", "channels"), [(32, 2, 1), (96, 1, 3)])
def test_a_training_pass_gives_every_parameter_a_gradient(name, size, images, channels):
    model = timm.create_model(name, num_classes=7, in_chans=channels)
    images = 2 if "stepnet" in name else images  # whose batch norm is over samples alone
    logits = model(torch.rand(images, channels, size, size))
    assert logits.shape == (images, 7)
    logits.square().sum().backward()
    missing = [n for n, p in model.named_parameters() if p.grad is None or p.grad.isnan().any()]
    assert missing == []


@pytest.mark.parametrize("name", EVERY)
def test_classes_cost_the_last_layer_alone(name):
    few, many = on_meta(name, num_classes=10), on_meta(name, num_classes=100)
    inputs = few.get_classifier().in_features
    assert parameters(many) - parameters(few) == 90 * (inputs + 1)


@pytest.mark.parametrize("name", EVERY)
def test_the_classifier_can_be_replaced_and_left_out(name):
    model, last = on_meta(name), last_state(name)
    inputs = model.get_classifier().in_features
    assert model.forward_head(last, pre_logits=True).shape == (2, inputs)
    model.reset_classifier(5)
    assert model.num_classes == model.get_classifier().out_features == 5
    assert model.to("meta").forward_head(last).shape == (2, 5)
    assert on_meta(name, num_classes=0).forward_head(last).shape == (2, inputs)


@pytest.mark.parametrize("name", SHALLOW)
def test_a_copy_by_its_state_dict_is_the_same_function(name):
    model, other = (stiffnet.create_model(name, num_classes=3, seed=s).eval() for s in (0, 1))
    image = torch.rand(1, 3, 32, 32)
    assert not torch.equal(model(image), other(image))
    other.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(model(image), other(image))


@pytest.mark.parametrize("name", SHALLOW)
def test_random_weights_depend_on_the_seed_alone(name):
    model = stiffnet.create_model(name, num_classes=3, seed=5).state_dict()
    torch.rand(3)
    again = stiffnet.create_model(name, num_classes=3, seed=5).state_dict()
    assert [key for key in model if not torch.equal(model[key], again[key])] == []


@pytest.mark.parametrize("name", SHALLOW)
def test_in_float64_a_sample_does_not_see_its_batch(name):
    model = timm.create_model(name, num_classes=3).double().eval()
    images = torch.rand(3, 3, 32, 32, dtype=torch.float64)
    together = model(images)
    assert together.dtype == torch.float64
    difference = (model(images[:1]) - together[:1]).abs().max()
    assert difference <= RTOL["batch64"] * together.abs().max()


@pytest.mark.parametrize("name", WITHOUT_STEPS)
def test_a_network_without_steps_says_so(name):
    with pytest.raises(StepError, match=r"has no residual steps.*Measure a residual network"):
        steps(on_meta(name), torch.empty(1, 3, 32, 32, device="meta"))
