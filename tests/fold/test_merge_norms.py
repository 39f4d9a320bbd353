"""Norms merged into the layers before them."""

import copy
import itertools

import pytest
import timm
import torch
import torchvision
from torch import nn

from stiffnet.errors import FoldError
from stiffnet.fold.fold import fold
from stiffnet.network.create import create_model
from stiffnet.network.deployed import changed

from .test_fold import assert_same, images, trained


def chain(*layers):
    torch.manual_seed(0)
    return trained(nn.Sequential(*layers))


def test_a_norm_is_merged_as_the_formula_says():
    kinds = (nn.Conv2d, nn.ConvTranspose2d)
    for kind, groups, bias, affine in itertools.product(kinds, (1, 2), *[(True, False)] * 2):
        merged_as_the_formula_says(kind, groups, bias=bias, affine=affine)


def merged_as_the_formula_says(kind, groups, *, bias, affine):
    model = chain(
        kind(4, 6, 3, groups=groups, bias=bias), nn.BatchNorm2d(6, eps=0.1, affine=affine)
    ).double()
    conv, norm = model
    x = torch.randn(2, 4, 7, 7, dtype=torch.float64)
    result = fold(model, x, fuse=True, passes=0)
    made, rest = result.model
    assert isinstance(rest, nn.Identity)
    scale = (norm.weight if affine else 1) / torch.sqrt(norm.running_var + 0.1)
    shift = (norm.bias if affine else 0) - norm.running_mean * scale
    old = conv.bias if bias else 0
    assert torch.allclose(made.bias, old * scale + shift, rtol=1e-12)
    by_channel = conv.weight.transpose(0, 1) if kind is nn.ConvTranspose2d else conv.weight
    if not (kind is nn.ConvTranspose2d and groups > 1):
        expected = by_channel * scale[:, None, None, None]
        found = made.weight.transpose(0, 1) if kind is nn.ConvTranspose2d else made.weight
        assert torch.allclose(found, expected, rtol=1e-12)
    assert_same(model, result.model, x, 1e-12)
    assert result.report.parameters_after == sum(p.numel() for p in conv.parameters()) + (
        0 if bias else 6
    )


def test_every_norm_behind_a_convolution_of_a_network_goes():
    model, x = trained(torchvision.models.resnet18(num_classes=5)), images(64)
    result = fold(model, x, fuse=True, passes=0)
    assert_same(model, result.model, x)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in result.model.modules())
    assert result.report.refused == ()
    assert len(result.report.folded) == 20
    assert all(p.requires_grad for p in result.model.parameters())


def test_an_activation_in_a_norm_stays():
    model = trained(timm.create_model("efficientnet_b0", num_classes=5))
    x = images(64)
    result = fold(model, x, fuse=True, passes=0)
    assert_same(model, result.model, x)
    assert isinstance(result.model.bn1, nn.SiLU)


def test_norms_that_follow_no_layer_stay_and_are_named():
    model, x = trained(create_model("preresnet29_cifar", num_classes=10)), images()
    result = fold(model, x, fuse=True, passes=0)
    assert_same(model, result.model, x)
    left = {item.name for item in result.report.refused}
    assert left == {n for n, m in result.model.named_modules() if isinstance(m, nn.BatchNorm2d)}
    assert left


class Shared(nn.Module):
    """A convolution and a norm that may be called by several."""

    def __init__(self, code):
        super().__init__()
        self.conv, self.norm, self.other = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.BatchNorm2d(3)
        self.code = code

    def forward(self, x):
        return self.code(self, x)


def _conv_twice(m, x):
    return m.norm(m.conv(x)) + m.conv(x)


def _norm_twice(m, x):
    return m.norm(m.conv(x)) + m.norm(x)


def _output_twice(m, x):
    value = m.conv(x)
    return m.norm(value) + value


def _two_norms(m, x):
    value = m.conv(x)
    return m.norm(value) + m.other(value)


SHARED = (
    (_conv_twice, "'conv.weight' is used 2 times"),
    (_norm_twice, "called more than once"),
    (_output_twice, "used elsewhere"),
    (_two_norms, "used elsewhere"),
)


def test_what_is_shared_is_not_merged():
    for code, reason in SHARED:
        torch.manual_seed(0)
        model, x = trained(Shared(code)).double(), images(4).double()
        with pytest.raises(FoldError, match=rf"'norm': .*{reason}"):
            fold(model, x, fuse=True, passes=0)


class Looks(nn.Sequential):
    """Code that looks into its second norm, and cannot be run without it."""

    def forward(self, x):
        return super().forward(x) + 0 * self[3].running_var.sum()


def test_a_norm_that_cannot_be_merged_is_left_and_the_others_are_merged():
    layers = [part for _ in range(5) for part in (nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3))]
    torch.manual_seed(0)
    model = trained(Looks(*layers)).double()
    result = fold(model, images(4).double(), fuse=True, passes=0)
    assert_same(model, result.model, images(5).double(), 1e-12)
    assert [item.name for item in result.report.folded] == ["1", "5", "7", "9"]
    [left] = result.report.refused
    assert left.name == "3"
    assert "merging it fails: Looks cannot be run after folding: " in left.reason
    assert "running_var" in left.reason


def test_a_norm_that_float32_cannot_do_without_is_left():
    model = chain(*[p for _ in range(3) for p in (nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3))])
    with torch.no_grad():
        model[2].bias.fill_(3e4)  # its norm takes it away again, at the cost of five digits
        model[3].running_mean.fill_(3e4)
    result = fold(model, images(4), fuse=True, passes=0)
    assert {item.name for item in result.report.folded} == {"1", "5"}
    assert [left.name for left in result.report.refused] == ["3"]
    assert_same(model, result.model, images(4))


def test_a_norm_without_statistics_is_not_merged():
    model = chain(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3, track_running_stats=False))
    with pytest.raises(FoldError, match="'1': it has no running statistics"):
        fold(model, images(4), fuse=True, passes=0)


def test_two_norms_in_a_row_are_both_merged():
    model = chain(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.BatchNorm2d(4)).double()
    result = fold(model, images(4).double(), fuse=True, passes=0)
    assert_same(model, result.model, images(4).double(), 1e-12)
    assert [item.name for item in result.report.folded] == ["1", "2"]


@pytest.mark.parametrize(
    ("name", "options"),
    [("resnet20_cifar", {}), ("acresnet56_cifar", {}), ("vgg19_cifar", {}), ("repvgg_a0", {})],
)
def test_the_same_changes_give_a_fresh_network_the_structure_of_the_folded_one(name, options):
    model = create_model(name, num_classes=4)
    trained(model)
    x = images(32)
    result = fold(model, x, fuse=True, passes=0)
    fresh = changed(create_model(name, num_classes=4, seed=5), result.report.changes)
    fresh.load_state_dict(copy.deepcopy(result.model.state_dict()), strict=True)
    with torch.no_grad():
        assert torch.equal(fresh.eval()(x), result.model(x))


def test_changes_of_another_network_are_refused():
    result = fold(trained(create_model("resnet20_cifar")), images(), fuse=True, passes=0)
    with pytest.raises(FoldError, match="has no 'bn1' that could be changed"):
        changed(create_model("vgg19_cifar"), result.report.changes)
