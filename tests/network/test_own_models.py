"""``timm.create_model(name, attention=...)`` is `stiffnet.create_model`, for networks of ours."""

import pytest
import timm
import torch

import stiffnet
from stiffnet.errors import UnknownNameError

NAMES = ("resnet20_cifar", "mobilenet_cifar", "vit_tiny_cifar")
assert stiffnet.create_model  # from here on timm knows our names


def through_timm(name, seed=3, **options):
    torch.manual_seed(seed)
    return timm.create_model(name, num_classes=3, **options)


def equal(one, other):
    one, other = one.state_dict(), other.state_dict()
    return list(one) == list(other) and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", NAMES)
def test_both_ways_give_the_same_bits(name):
    ours = stiffnet.create_model(name, num_classes=3, attention="se,reduction=8", seed=3)
    model = through_timm(name, attention="se,reduction=8")
    assert stiffnet.attached(model) == stiffnet.attached(ours) != []
    assert equal(model, ours)
    x = torch.rand(1, 3, 32, 32)
    assert torch.equal(model.eval()(x), ours.eval()(x))


def test_the_backbone_and_what_is_drawn_next_do_not_depend_on_it():
    plain = through_timm("resnet20_cifar")
    after = torch.rand(3)
    model = through_timm("resnet20_cifar", attention="stepnet")
    assert torch.equal(torch.rand(3), after)
    assert equal(stiffnet.detach(model), plain)


@pytest.mark.parametrize("attention", [None, "none"])
def test_nothing_is_attached_where_nothing_is_asked_for(attention):
    model = through_timm("resnet20_cifar", attention=attention)
    assert stiffnet.attached(model) == []
    assert equal(model, through_timm("resnet20_cifar"))


def test_an_unknown_module_is_refused_by_its_nearest_name():
    with pytest.raises(UnknownNameError, match="Did you mean 'stepnet'"):
        through_timm("resnet20_cifar", attention="stepnett")


def test_weights_that_are_loaded_are_left_as_they_compute(tmp_path):
    plain = through_timm("resnet20_cifar", seed=1).eval()
    torch.save(plain.state_dict(), tmp_path / "weights.pth")
    here = {"file": str(tmp_path / "weights.pth"), "num_classes": 3}
    model = through_timm(
        "resnet20_cifar", attention="se", pretrained=True, pretrained_cfg_overlay=here
    )
    assert all(gate.unit != 1 for gate in (b.step_size for b in model.layer1))
    assert equal(stiffnet.detach(model), plain)
