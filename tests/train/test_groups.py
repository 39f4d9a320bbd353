"""Parameter groups: everything that learns is in one of them, once, and decays as it should."""

import pytest
import timm
import torch
from torch import nn

import stiffnet.network.own_models  # noqa: F401  # timm knows our names from here on
from stiffnet.errors import RecipeError, UnknownNameError
from stiffnet.train.groups import parameter_groups

NETWORKS = [
    "resnet20_cifar", "preresnet164_cifar", "vit_tiny_patch16_224", "xcit_nano_12_p16_224",
    "tiny_vit_5m_224", "convnext_atto", "nest_tiny",
]  # fmt: skip
TEMPERATURES = [f"blocks.{i}.attn.temperature" for i in range(12)]


def create(name):
    with torch.device("meta"):
        return timm.create_model(name)


def names(group):
    return [name for name, _ in group["params"]]


class Spare(nn.Module):
    """A module that exempts one of its weights, and one that it does not have."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 2))
        self.other = nn.Linear(2, 2)

    def no_weight_decay(self):
        return {"weight", "other.weight", "token"}


@pytest.mark.parametrize("decay", ["all", "weights"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_parameter_is_in_one_group_in_the_networks_order(name, decay):
    model = create(name)
    groups = parameter_groups(model, 0.05, decay)
    expected = [name for name, _ in model.named_parameters()]
    found = [name for group in groups for name in names(group)]
    assert sorted(found) == sorted(expected)
    parameters = dict(model.named_parameters())
    for group in groups:
        assert names(group) == [name for name in expected if name in set(names(group))]
        assert all(parameters[name] is parameter for name, parameter in group["params"])


@pytest.mark.parametrize("name", NETWORKS)
def test_only_weights_decay_if_asked(name):
    model = create(name)
    decayed, spared = parameter_groups(model, 0.05, "weights")
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.05, 0.0)
    assert all(parameter.dim() >= 2 for _, parameter in decayed["params"])
    large = {name for name, parameter in spared["params"] if parameter.dim() >= 2}
    assert large <= exempted(model)


def exempted(model):
    """By timm's convention, asked of every module, with the module's path before the names."""
    return {
        f"{path}.{name}" if path else name
        for path, module in model.named_modules()
        for name in getattr(module, "no_weight_decay", set)()
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resnet20_cifar", []),
        ("vit_tiny_patch16_224", ["cls_token", "pos_embed"]),
        ("xcit_nano_12_p16_224", ["cls_token", *TEMPERATURES]),
    ],
)
def test_what_a_module_exempts_never_decays(name, expected):
    decayed, *rest = parameter_groups(create(name), 0.05, "all")
    assert decayed["weight_decay"] == 0.05
    assert [name for group in rest for name in names(group)] == expected
    assert [group["weight_decay"] for group in rest] == [0.0] * bool(expected)


def test_a_module_speaks_for_its_own_parameters_wherever_it_is():
    model = nn.ModuleDict({"weight": nn.Linear(2, 2), "inner": nn.Sequential(nn.Tanh(), Spare())})
    decayed, spared = parameter_groups(model, 0.1, "all")
    assert names(spared) == ["inner.1.weight", "inner.1.other.weight"]
    assert names(decayed) == ["weight.weight", "weight.bias", "inner.1.other.bias"]


def test_a_shared_parameter_counts_once_and_is_exempt_under_any_name():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), Spare())
    model[0].weight = model[1].other.weight
    decayed, spared = parameter_groups(model, 0.1, "all")
    assert names(decayed) == ["1.other.bias"]
    assert names(spared) == ["0.weight", "1.weight"]
    alone = Spare()
    alone.first = alone.other.weight  # comes before its other name, which is the exempt one
    [_, spared] = parameter_groups(alone, 0.1, "all")
    assert names(spared) == ["weight", "first"]


def test_what_is_frozen_is_in_no_group():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    [group] = parameter_groups(model, 0.1, "all")
    assert names(group) == ["1.weight", "1.bias"]
    model.requires_grad_(False)
    with pytest.raises(RecipeError, match=r"Sequential has no parameter.*`requires_grad_\(\)`"):
        parameter_groups(model, 0.1, "all")


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_an_optimizer_keeps_the_names_and_decays_the_first_group_only(optimizer):
    model = nn.Linear(2, 1)
    groups = optimizer(parameter_groups(model, 0.5, "weights"), lr=0.1).state_dict()["param_groups"]
    assert [group["param_names"] for group in groups] == [["weight"], ["bias"]]
    assert [group["params"] for group in groups] == [[0], [1]]
    assert [group["weight_decay"] for group in groups] == [0.5, 0.0]


def test_refuses_another_word():
    with pytest.raises(UnknownNameError, match=r"no choice of `decay` called 'weight'.*'weights'"):
        parameter_groups(nn.Linear(1, 1), 0.1, "weight")
