"""Parallel branches made one layer."""

import re
from pathlib import Path

import pytest
import timm
import torch
from timm.utils import reparameterize_model
from torch import nn

from stiffnet.backbones.cifar_acnet import AsymmetricConv
from stiffnet.errors import FoldError
from stiffnet.fold.fold import fold
from stiffnet.network.attach import attach, attached
from stiffnet.network.create import create_model
from stiffnet.network.deployed import Change, changed
from tolerances import RTOL

from .test_fold import assert_same, images, trained


@pytest.mark.parametrize("stride", [1, 2])
def test_a_cross_of_convolutions_is_one_convolution(stride):
    torch.manual_seed(0)
    block = trained(AsymmetricConv(4, 6, stride)).double()
    x = torch.randn(2, 4, 7, 7, dtype=torch.float64)
    conv = block.fuse()
    assert isinstance(conv, nn.Conv2d)
    assert_same(block, conv, x, 1e-12)
    with pytest.raises(FoldError, match=r"Call `eval\(\)` first"):
        block.train().fuse()


def test_timms_own_function_takes_our_networks():
    model, x = trained(create_model("acresnet56_cifar", num_classes=10)), images()
    made = reparameterize_model(model)
    assert_same(model, made, x)
    assert not any(isinstance(m, AsymmetricConv) for m in made.modules())


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        ("repvgg_a0", None),
        ("repvgg_a0", "asr:se"),
        ("repvgg_a0", "asr:iebn"),
        ("acresnet56_cifar", "asr:se"),
        pytest.param("acresnet56_cifar", None, marks=pytest.mark.slow),
        pytest.param("acresnet56_cifar", "asr:iebn", marks=pytest.mark.slow),
    ],
)
def test_networks_of_branches_with_a_gate_on_top_and_without(name, attention):
    model, x = create_model(name, num_classes=10, attention=attention), images()
    trained(model)
    result = fold(model, x, passes=0)
    assert_same(model, result.model, x)
    kinds = {item.kind for item in result.report.folded}
    assert kinds == {"branches", *([attention] if attention else [])}
    assert not any(isinstance(m, nn.BatchNorm2d) for m in result.model.modules()) or (
        name == "acresnet56_cifar"  # its shortcuts have norms
    )
    assert all(p.requires_grad for p in result.model.parameters())
    with pytest.raises(FoldError, match="folded already"):
        fold(result.model, x, passes=0)


def test_branches_can_be_left():
    model, x = trained(create_model("repvgg_a0", num_classes=10, attention="asr:se")), images()
    made = fold(model, x, branches=False, passes=0).model
    plain = timm.create_model("repvgg_a0", num_classes=10).eval()
    plain.load_state_dict(made.state_dict())
    assert_same(model, plain, x)


class Deploys(nn.Module):
    """A module of a user's that switches itself."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.one(x) + (self.other(x) if self.other is not None else 0)

    def switch_to_deploy(self):
        self.one.weight.detach_().add_(self.other.weight.detach())
        self.one.bias.detach_().add_(self.other.bias.detach())
        self.other = None


def test_the_root_too_and_what_was_learnt_is_learnt():
    torch.manual_seed(0)
    model, x = Deploys().eval(), torch.randn(3, 4)
    result = fold(model, x, passes=0)
    assert_same(model, result.model, x)
    assert result.report.parameters_after == 20
    assert all(p.requires_grad for p in result.model.parameters())


class Lies(Deploys):
    """A module whose method does not keep what it computes."""

    def switch_to_deploy(self):
        self.other = None


class Fails(Deploys):
    """A module whose method raises."""

    def switch_to_deploy(self):
        raise RuntimeError("not today")


def test_a_wrong_method_is_found_out():
    model = nn.Sequential(Lies()).eval()
    with pytest.raises(FoldError, match="The folded Sequential differs from the original by"):
        fold(model, torch.randn(3, 4), passes=0)
    with pytest.raises(FoldError, match=r"The branches of 0 cannot be joined .* not today"):
        fold(nn.Sequential(Fails()).eval(), torch.randn(3, 4), passes=0)


def test_frozen_parameters_of_timms_methods_learn_again():
    model, x = trained(timm.create_model("fastvit_t8", num_classes=5)), images(64)
    result = fold(model, x, passes=0)
    assert_same(model, result.model, x)
    assert all(p.requires_grad for p in result.model.parameters())


def test_gates_on_networks_that_fuse_themselves():
    model = attach(timm.create_model("levit_128s", num_classes=5), "asr:se")
    x = images(224, 2)
    result = fold(trained(model), x, passes=0)
    assert_same(model, result.model, x)


QUICK = ("ghostnetv3_050", "efficientvim_m1")  # branches within branches
FAMILIES = (
    *QUICK, "efficientvit_m0", "fastvit_mci0", "fastvit_t8", "iformer_t", "lcnetv2_small",
    "levit_128s", "mobileone_s0", "nextvit_small", "repghostnet_050", "repvgg_a0", "repvit_m0_9",
    "shvit_s1", "tiny_vit_5m_224",
)  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in FAMILIES]
)
def test_as_few_parameters_are_left_as_timms_own_function_leaves(name):
    config = timm.get_pretrained_cfg(name)
    size = config.input_size[-1] if config.fixed_input_size else 64
    torch.manual_seed(0)
    model = trained(timm.create_model(name, num_classes=5)).double()
    result = fold(model, images(size, 2).double(), passes=0)
    expected = sum(p.numel() for p in reparameterize_model(model).parameters())
    assert sum(p.numel() for p in result.model.parameters()) <= expected
    for other in (size,) if config.fixed_input_size else (size, size + 32):
        assert_same(model, result.model, images(other, 3).double(), RTOL["float64"])
    fresh = changed(timm.create_model(name, num_classes=5), result.report.changes).double()
    fresh.load_state_dict(result.model.state_dict(), strict=True)
    assert_same(model, fresh.eval(), images(size, 1).double(), RTOL["float64"])


def test_all_of_timms_families_that_can_be_joined_are_compared():
    folder = Path(timm.__file__).parent / "models"
    methods = re.compile(r"def (fuse|reparameterize|switch_to_deploy)\(self\)")
    there = {path.stem for path in folder.glob("*.py") if methods.search(path.read_text())}
    seen = {timm.models.model_entrypoint(n).__module__.rpartition(".")[2] for n in FAMILIES}
    assert there == seen


class Flag(Deploys):
    """A method that changes numbers and a flag, and no structure."""

    deployed = False

    def forward(self, x):
        return self.one(x) if self.deployed else self.one(x) + x

    def switch_to_deploy(self):
        if not self.deployed:
            self.one.weight.data.add_(torch.eye(4))
            self.deployed = True


def test_a_change_of_numbers_is_a_change():
    torch.manual_seed(0)
    shared = Flag()
    model, x = nn.Sequential(shared, nn.ReLU(), shared).eval(), torch.randn(3, 4)
    result = fold(model, x, passes=0)
    assert_same(model, result.model, x)
    assert result.report.changes == (Change("branches", "0"),)
    fresh = changed(nn.Sequential(Flag(), nn.ReLU()).eval(), result.report.changes)
    assert fresh[0].deployed


def test_what_ordinary_attention_is_in_is_left_and_the_rest_joined():
    """Its own method knows nothing of a norm whose step size depends on the input."""
    model = trained(create_model("repvgg_a0", num_classes=5, attention="iebn")).double()
    inside = {sits.name.rpartition(".conv")[0] for sits in attached(model)}
    with pytest.raises(FoldError, match=r"Nothing in ByobNet can be folded .*depends on the input"):
        fold(model, images().double(), passes=0)
    model = create_model("repvgg_a0", num_classes=5)
    attach(model, "iebn", where="stages.0*")
    trained(model).double()
    x = images().double()
    result = fold(model, x, passes=0)
    assert_same(model, result.model, x, RTOL["float64"])
    assert inside
    left = {item.name: item.reason for item in result.report.refused}
    blocks = [path for path in left if path.count(".") == 2]
    assert blocks
    assert all("is attached inside, which its own method does not" in left[p] for p in blocks)
    assert not {item.name for item in result.report.folded} & set(left)
