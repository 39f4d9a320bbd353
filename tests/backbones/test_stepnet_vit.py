"""StepNet in the place of self-attention: what is left of a block, how it moves, that it learns."""

import copy
import math

import pytest
import timm
import torch
from torch.nn import functional as F

from stiffnet.errors import StepError
from stiffnet.observe.measure import measure
from stiffnet.trajectory.record import record
from stiffnet.trajectory.steps import steps
from tolerances import RTOL

WIDTH, DEPTH = 192, 12
VARIANTS = {"vit_tiny_stepnet_cifar": (32, 4), "vit_tiny_stepnet_stl": (96, 8)}  # sides


def tiny(**options):
    options = {"depth": 2, "embed_dim": 48, "num_classes": 3} | options
    return timm.create_model("vit_tiny_stepnet_cifar", **options)


def opened(model):
    """Let every gate look at its input, as it does once it has learnt."""
    for block in model.blocks:
        torch.nn.init.normal_(block.attn.adaptor.affine.weight)
    return model


def linear(inputs, outputs):
    return inputs * outputs + outputs


@pytest.mark.parametrize("name", VARIANTS)
def test_a_block_costs_its_values_six_numbers_a_channel_and_its_mlp(name):
    size, patch = VARIANTS[name]
    tokens = (size // patch) ** 2
    mlp = linear(WIDTH, 4 * WIDTH) + linear(4 * WIDTH, WIDTH)
    block = 2 * 2 * WIDTH + linear(WIDTH, WIDTH) + 6 * WIDTH + mlp
    embedding = linear(3 * patch * patch, WIDTH) + tokens * WIDTH
    expected = embedding + DEPTH * block + 2 * WIDTH + linear(WIDTH, 10)
    with torch.device("meta"):
        assert sum(p.numel() for p in timm.create_model(name).parameters()) == expected


@pytest.mark.parametrize("name", VARIANTS)
def test_every_first_step_of_a_block_has_a_gate(name):
    size, patch = VARIANTS[name]
    with torch.device("meta"):
        found = steps(timm.create_model(name), torch.empty(1, 3, size, size))
    assert [step.name for step in found[:2]] == ["blocks.0", "blocks.0#1"]
    assert [step.gates for step in found[:2]] == [("blocks.0.attn",), ()]
    assert found[0].branch == ("blocks.0.norm1", "blocks.0.value")
    assert len(found) == 2 * DEPTH
    assert all(step.identity for step in found)
    assert {(step.stage, step.shape) for step in found} == {(0, ((size // patch) ** 2, WIDTH))}


def test_a_block_is_the_published_equation():
    block = opened(tiny()).blocks[0].double().eval()
    x = torch.rand(3, 64, 48, dtype=torch.float64)
    rate = F.linear(F.layer_norm(x, (48,), eps=block.norm1.eps), block.value.weight)
    rate = rate + block.value.bias
    now, after = x.mean(1), (x + rate).mean(1)
    adaptor = block.attn.adaptor
    mixed = adaptor.weight[:, 0] * now + adaptor.weight[:, 1] * after
    mixed = mixed / (1 + adaptor.norm.eps) ** 0.5  # running statistics as they begin
    gate = torch.sigmoid(adaptor.affine.weight * mixed + adaptor.affine.bias)
    moved = x + gate.unsqueeze(1) * rate
    expected = moved + block.mlp(block.norm2(moved))
    assert ((block(x) - expected).abs() <= RTOL["float64"] * expected.abs().max()).all()


def test_the_rate_is_recorded_before_the_gate():
    model, x = opened(tiny()).eval(), torch.rand(2, 3, 32, 32)
    with torch.no_grad(), record(model) as recording:
        model(x)
    sizes = recording.trajectory.step_sizes
    assert ((sizes[:, ::2] > 0) & (sizes[:, ::2] < 1)).all()
    assert (sizes[:, 1::2] == 1).all()


def test_tokens_meet_in_the_gate_alone():
    model, x = tiny().double().eval(), torch.rand(1, 3, 32, 32, dtype=torch.float64)
    other = x.clone()
    other[:, :, :4, :4] = 0  # the first patch
    with torch.no_grad():
        change = (model.forward_features(x) - model.forward_features(other)).abs().amax((0, 2))
        assert change[0] > 0
        assert (change[1:] == 0).all()
        opened(model)
        change = (model.forward_features(x) - model.forward_features(other)).abs().amax((0, 2))
        assert (change > 0).all()


def test_it_is_measured():
    images = torch.rand(4, 3, 32, 32)
    report = measure(tiny(), [(images, torch.zeros(4, dtype=torch.long))])
    frame = report.to_frame()
    assert len(frame) == 4
    assert frame.nsi_mean.gt(0).all()


def test_it_learns_by_heart():
    torch.manual_seed(0)
    model = tiny().train()
    before = copy.deepcopy(model.state_dict())
    images, labels = torch.rand(6, 3, 32, 32), torch.arange(6) % 3
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(40):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert torch.equal(model(images).argmax(1), labels)
    assert loss.item() < math.log(2)  # what it costs to waver between two of the three classes
    assert all(not torch.equal(before[name], p) for name, p in model.named_parameters())


@pytest.mark.parametrize("options", [{"attn_mask": torch.ones(64, 64)}, {"is_causal": True}])
def test_a_mask_has_nothing_to_mask(options):
    with pytest.raises(StepError, match=r"no attention between tokens.*Leave the mask out"):
        tiny().blocks[0](torch.rand(2, 64, 48), **options)
