"""A head is what follows the number of classes, and a new one changes nothing else."""

import math

import pytest
import torch
from torch.nn import functional as F

from stiffnet.errors import CheckpointError
from stiffnet.network.new_head import head_shapes, outputs_in, with_new_head
from stiffnet.network.open import open_model

HEADS = {
    "resnet20_cifar": {"fc.weight", "fc.bias"},
    "test_vit": {"head.weight", "head.bias"},
    "torchvision:squeezenet1_1": {"classifier.1.weight", "classifier.1.bias"},
    "torchvision:googlenet": {
        f"{name}.{part}" for name in ("aux1.fc2", "aux2.fc2", "fc") for part in ("weight", "bias")
    },
}


@pytest.mark.parametrize("name", HEADS)
def test_the_head_is_found_whatever_a_network_calls_it(name):
    assert head_shapes(name, {}).keys() == HEADS[name]


def test_attached_modules_do_not_belong_to_it():
    assert head_shapes("resnet20_cifar", {"attention": "se"}).keys() == HEADS["resnet20_cifar"]


def test_a_network_without_a_head_is_refused(monkeypatch):
    monkeypatch.setattr("stiffnet.network.new_head._built", lambda *_: {"a": torch.zeros(2)})
    with pytest.raises(CheckpointError, match="no head whose size is the number of classes"):
        head_shapes("resnet20_cifar", {})


@pytest.mark.parametrize("name", ["resnet20_cifar", "torchvision:squeezenet1_1"])
def test_the_number_of_classes_is_read_off_a_file_with_prefixes_and_wrappers(name):
    head = head_shapes(name, {})
    state = open_model(name, num_classes=7).model.state_dict()
    prefixed = {f"net.module.{key}": value for key, value in state.items()}
    assert outputs_in(state, head) == 7
    assert outputs_in({"epoch": 3, "state_dict": prefixed}, head) == 7
    assert outputs_in({"conv1.weight": torch.zeros(2)}, head) is None


@pytest.mark.parametrize("attention", [None, "se"])
def test_everything_but_the_head_stays_bit_for_bit(attention):
    source = open_model("resnet20_cifar", num_classes=7, attention=attention, seed=3)
    made = with_new_head(source, 4, seed=5)
    before, after = source.model.state_dict(), made.model.state_dict()
    assert list(before) == list(after)
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert before.keys() - same == HEADS["resnet20_cifar"]
    assert made.options == {**source.options, "num_classes": 4}
    assert not made.model.training


def test_a_new_head_depends_on_the_seed_alone_and_borrows_no_random_numbers():
    source = open_model("resnet20_cifar", num_classes=7)
    torch.manual_seed(11)
    state = torch.get_rng_state()
    one, again, other = (with_new_head(source, 4, seed=seed).model.fc.weight for seed in (5, 5, 6))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def first_logits(name):
    made = with_new_head(open_model(name, num_classes=1000), 10, seed=0)
    return made.model(torch.randn(4, 3, 96, 96, generator=torch.Generator().manual_seed(0)))


def test_at_first_all_classes_are_about_equally_likely():
    head = with_new_head(open_model("resnet18", num_classes=1000), 100, seed=0).model.fc
    assert head.weight.std().item() == pytest.approx(0.01, rel=0.02)  # 51,200 normal numbers
    assert not head.bias.any()
    features = torch.rand(4, 512, generator=torch.Generator().manual_seed(0))
    for label in range(100):
        loss = F.cross_entropy(head(features), torch.full((4,), label)).item()
        # A logit's deviation is 0.01 times the features' norm, √(512 / 3).
        assert loss == pytest.approx(math.log(100), abs=0.04 * math.sqrt(512 / 3))


def test_a_head_with_an_activation_behind_it_can_learn():
    logits = first_logits("torchvision:squeezenet1_1")  # whose head ends in a ReLU
    F.cross_entropy(logits, torch.arange(4)).backward()
    assert (logits > 0).any(0).sum() > 1
