"""A gate is no part of a step: what the network is read as does not change with it."""

import copy

import pytest
import torch

from network.attach_cases import images, network, of_timm
from stiffnet.attention import ATTENTION
from stiffnet.network.attach import attach
from stiffnet.trajectory.record import record
from stiffnet.trajectory.steps import steps
from tolerances import RTOL

PIXELS = of_timm("resnet20_cifar", 4, 9)  # one is left in the last stage: a gate is as large
FAST = {
    "maps": of_timm("resnet20_cifar", 16, 9),
    "a pixel": PIXELS,
    "pre-activation": of_timm("preresnet29_cifar", 4, 9),
    "timm": of_timm("resnet18", 32, 5, layers=(2, 1, 1, 1), channels=(8, 8, 16, 16)),
    "tokens": of_timm("vit_tiny_cifar", 32, 4, depth=2),
}
LARGE = {
    "a stem for small images": of_timm("resnet18_small", 16, 8),
    "timm": of_timm("resnet18", 32, 8),
    "states as arguments": of_timm("dla46x_c", 32, 12),
    "pre-activation": of_timm("preresnet29_cifar", 16, 9),
    "tokens": of_timm("vit_tiny_patch16_224", 32, 24, img_size=32),
}
EVERY_MODULE = [entry.name for entry in ATTENTION if entry.name != "iebn"]  # that one is a norm


def reading(model, batch):
    """What a step is, apart from its gates, and the index of every sample at it."""
    found = steps(model, batch)
    with torch.no_grad(), record(model, found) as recording:
        model(batch)
    seen = recording.trajectory
    facts = [(s.name, s.stage, s.shape, s.identity, s.counted, s.branch) for s in found]
    return facts, seen.rate_norms / seen.state_norms, found


def holds(case, module, **options):
    plain, batch = network(case), images(case)
    facts, index, bare = reading(plain, batch)
    assert len(bare) == case.steps
    for start in ("identity", "paper"):
        model = copy.deepcopy(plain)
        attach(model, module, start=start, example=batch, **options)
        gated_facts, gated_index, gated = reading(model, batch)
        assert gated_facts == facts
        new = [set(g.gates) - set(b.gates) for g, b in zip(gated, bare, strict=True)]
        assert all(len(names) == 1 and "step_size" in names.pop() for names in new)
        assert torch.equal(gated_index[:, 0], index[:, 0])
        if start == "identity":
            assert ((gated_index - index).abs() <= RTOL["identity"] * index).all()


@pytest.mark.parametrize("module", ["se", "dia", "stepnet"])
@pytest.mark.parametrize("case", FAST.values(), ids=FAST)
def test_steps_and_indices_are_those_of_the_plain_network(case, module):
    holds(case, module)


@pytest.mark.slow
@pytest.mark.parametrize("module", ["se", "stepnet"])
@pytest.mark.parametrize("case", LARGE.values(), ids=LARGE)
def test_steps_and_indices_of_large_networks_are_those_without(case, module):
    holds(case, module)


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(name, marks=[] if name in ("se", "sge", "dia") else pytest.mark.slow)
        for name in EVERY_MODULE
    ],
)
def test_on_one_pixel_every_module_is_seen_as_a_gate(module):
    holds(PIXELS, module, **({"groups": 8} if module == "sge" else {}))


@pytest.mark.parametrize("read", ["x_t", "x_t+1", "difference"])
def test_whatever_stepnet_reads_it_is_a_gate(read):
    holds(PIXELS, "stepnet", input=read)


def test_two_gates_on_a_step_are_both_before_its_addition():
    plain, batch = network(FAST["timm"]), images(FAST["timm"])
    facts, index, _ = reading(plain, batch)
    attach(attach(plain, "stepnet", example=batch), "stepnet", example=batch)
    gated_facts, gated_index, gated = reading(plain, batch)
    assert gated_facts == facts
    assert torch.equal(gated_index[:, 0], index[:, 0])
    assert all(s.gates == (f"{s.name}.step_size_2", f"{s.name}.step_size") for s in gated)
