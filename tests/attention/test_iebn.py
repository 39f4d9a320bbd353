"""A batch norm with a gate: what it keeps of the norm that it replaces, and gives back."""

import copy

import pytest
import torch
from timm.layers import (
    BatchNormAct2d,
    LayerNorm2d,
    convert_splitbn_model,
    convert_sync_batchnorm as timm_convert,
    freeze_batch_norm_2d,
)
from timm.models.repvit import ConvNorm
from torch import nn
from torch.nn import functional
from torch.nn.utils import prune
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.testing import assert_close

from attention.cases import random
from stiffnet.attention.iebn import IEBN
from stiffnet.errors import StepError
from tolerances import RTOL


def held():
    """A norm that keeps its statistics and moves them no more."""
    norm = nn.BatchNorm2d(6)
    norm.track_running_stats = False
    return norm


NORMS = {
    "1d": (lambda: nn.BatchNorm1d(6, eps=1e-3), (4, 6, 9)),
    "2d": (lambda: nn.BatchNorm2d(6, momentum=0.3), (4, 6, 3, 3)),
    "3d": (lambda: nn.BatchNorm3d(6), (4, 6, 2, 3, 3)),
    "cumulative": (lambda: nn.BatchNorm2d(6, momentum=None), (4, 6, 3, 3)),
    "held": (held, (4, 6, 3, 3)),
    "with activation": (lambda: BatchNormAct2d(6, inplace=False), (4, 6, 3, 3)),
}


@pytest.fixture(params=NORMS)
def norm_and_batch(request):
    make, shape = NORMS[request.param]
    norm = make().double()
    with torch.no_grad():
        norm.weight.copy_(random(6, seed=1))
        norm.bias.copy_(random(6, seed=2))
    norm(random(*shape, seed=3))
    return norm, random(*shape, seed=4)


def test_the_norms_own_keys_and_tensors_stay(norm_and_batch):
    norm, _ = norm_and_batch
    gated = IEBN.from_norm(norm)
    old, new = norm.state_dict(), gated.state_dict()
    assert set(new) - set(old) == {"ie.weight", "ie.bias", "unit"}
    assert set(old) <= set(new)
    assert gated.weight is norm.weight
    assert all(new[key].data_ptr() == old[key].data_ptr() for key in old)
    missing = gated.load_state_dict(copy.deepcopy(old), strict=False)
    assert missing.unexpected_keys == []


@pytest.mark.parametrize("training", [False, True], ids=["evaluating", "training"])
def test_at_an_identity_start_it_is_that_norm_statistics_and_all(norm_and_batch, training):
    norm, batch = norm_and_batch
    norm.train(training)
    gated = IEBN.from_norm(copy.deepcopy(norm)).start_at_identity()
    assert gated.training == training
    assert_close(gated(batch), norm(batch), rtol=RTOL["norm"], atol=RTOL["norm"])
    for key, value in norm.state_dict().items():
        assert torch.equal(gated.state_dict()[key], value)


def test_the_gate_scales_the_weight_and_not_the_shift():
    norm = nn.BatchNorm2d(6).double().eval()
    nn.init.constant_(norm.bias, 7.0)
    gated = IEBN.from_norm(norm)
    nn.init.constant_(gated.ie.bias, -1e3)
    batch = random(2, 6, 3, 3)
    assert torch.equal(gated(batch), torch.full_like(batch, 7.0))


def test_the_norm_comes_back_the_same_object_with_the_tensors_of_now(norm_and_batch):
    norm, batch = norm_and_batch
    gated = IEBN.from_norm(norm)
    gated.train()(batch).sum().backward()
    statistics = copy.deepcopy(gated.running_mean)
    back = gated.float().double().eval().to_norm()
    assert back is norm
    assert not back.training
    assert back.weight is gated.weight
    assert back.running_mean is gated.running_mean
    assert_close(back.running_mean, statistics, rtol=RTOL["norm"], atol=0.0)


def test_a_copy_gives_back_a_norm_of_its_own():
    norm = nn.BatchNorm2d(6)
    twin = copy.deepcopy(IEBN.from_norm(norm))
    assert twin.to_norm() is not norm
    assert twin.to_norm().weight is twin.weight
    assert len(list(twin.parameters())) == 4


def test_one_that_replaced_nothing_becomes_a_plain_norm():
    gated = IEBN(6, eps=1e-3).double().eval()
    nn.init.constant_(gated.running_mean, 2.0)
    plain, batch = gated.to_norm(), random(2, 6, 3, 3)
    assert type(plain) is nn.BatchNorm2d
    numbers = gated.running_mean, gated.running_var, gated.weight, gated.bias
    expected = functional.batch_norm(batch, *numbers, training=False, eps=1e-3)
    assert_close(plain(batch), expected, rtol=0.0, atol=0.0)


@pytest.mark.parametrize(
    "norm", [nn.GroupNorm(2, 6), LayerNorm2d(6), nn.SyncBatchNorm(6), nn.Identity()], ids=str
)
def test_another_norm_is_refused(norm):
    kind = type(norm).__name__
    with pytest.raises(StepError, match=f"place of a BatchNorm, and this is a {kind}; leave it"):
        IEBN.from_norm(norm)


@pytest.mark.parametrize("lacking", [{"affine": False}, {"track_running_stats": False}], ids=str)
def test_a_norm_without_weight_or_statistics_is_refused(lacking):
    with pytest.raises(StepError, match="this one lacks some; leave it out, or use 'ie'"):
        IEBN.from_norm(nn.BatchNorm2d(6, **lacking))


def test_a_norm_with_other_tensors_is_refused():
    pruned = prune.random_unstructured(nn.BatchNorm2d(6), "weight", 0.5)
    with pytest.raises(StepError, match="no place for weight_mask and weight_orig of this"):
        IEBN.from_norm(pruned)


CONVERSIONS = {
    "torch's SyncBatchNorm": nn.SyncBatchNorm.convert_sync_batchnorm,
    "timm's SyncBatchNorm": timm_convert,
    "timm's frozen norms": freeze_batch_norm_2d,
    "timm's split norms": lambda model: convert_splitbn_model(model, 2),
    "torch's fusion": lambda model: fuse_conv_bn_eval(model.c, model.bn),
    "the block's own fusion": lambda model: model.fuse(),
}


@pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)
def test_a_conversion_that_would_lose_the_gate_is_refused(convert):
    model = ConvNorm(6, 6).eval()
    model.bn = gated = IEBN.from_norm(model.bn)
    with pytest.raises(StepError, match=r"place of IEBN would lose its gate.*synchronise"):
        convert(model)
    assert model.bn is gated
    assert [name for name, _ in gated.named_children()] == ["drop", "act", "ie"]


def test_an_epsilon_set_on_all_norms_is_the_gated_norms_and_stays_when_it_is_taken_out():
    plain = nn.BatchNorm2d(6).eval()
    gated = IEBN.from_norm(plain)
    gated.eps = plain.eps = 0.5
    images = torch.randn(2, 6, 4, 4)
    gate = gated.step_size(images)
    assert torch.allclose(gated(images), plain(images) * gate)  # the shift is 0
    assert "eps=0.5" in repr(gated)
    plain.eps = 1e-5
    assert gated.to_norm().eps == 0.5
