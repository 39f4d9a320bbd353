"""One cell a stage: what it hands on, when it forgets, and what it refuses."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from attention.cases import random, shaken
from reference import attention as reference
from stiffnet.attention.dia import DIA
from stiffnet.errors import StepError
from tolerances import RTOL

WIDTH, STEPS = 12, 3


class Stage(nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(WIDTH, WIDTH, 1) for _ in range(steps))
        self.gates = nn.ModuleList(DIA.for_stage(WIDTH, steps))

    def forward(self, x):
        for conv, gate in zip(self.convs, self.gates, strict=True):
            x = x + gate(conv(x))
        return x


def network():
    torch.manual_seed(0)
    return nn.Sequential(Stage(STEPS), Stage(2))


def test_the_stage_is_one_recurrence():
    stage = nn.ModuleList(DIA.for_stage(WIDTH, STEPS))
    shaken(stage)
    for gate in stage:
        gate.unit.fill_(1.5)
    rates = [random(3, WIDTH, 4, 5, seed=t) for t in range(STEPS)]
    out = [gate(rate) for gate, rate in zip(stage, rates, strict=True)]
    p = {name: tensor.numpy() for name, tensor in stage[0].state_dict().items()}
    expected = reference.dia_stage(p, [rate.numpy() for rate in rates])
    for ours, theirs in zip(out, expected, strict=True):
        assert_close(ours.detach(), torch.from_numpy(theirs), rtol=RTOL["batch64"], atol=0.0)


def test_a_stage_and_a_pass_know_nothing_of_those_before():
    model = network().eval()
    x = random(2, WIDTH, 6, 6, dtype=torch.float32)
    first = model(x)
    model(3 * x)
    assert torch.equal(model(x), first)
    assert torch.equal(model[1](model[0](x)), first)
    assert [gate.memory.held for stage in model for gate in stage.gates] == [None] * 5


def test_two_stages_may_run_side_by_side():
    torch.manual_seed(0)
    left, right = DIA.for_stage(WIDTH, 2), DIA.for_stage(WIDTH, 2)
    rate = random(2, WIDTH, 3, 3, dtype=torch.float32)
    alone = [[gate(rate) for gate in stage] for stage in (left, right)]
    turns = [(a(rate), b(rate)) for a, b in zip(left, right, strict=True)]
    for stage, together in zip(alone, zip(*turns, strict=True), strict=True):
        assert all(torch.equal(x, y) for x, y in zip(stage, together, strict=True))


def test_a_pass_that_broke_off_is_forgotten_by_the_next():
    model = network().eval()
    x = random(2, WIDTH, 6, 6, dtype=torch.float32)
    expected = model(x)
    model[0].gates[0](100 * x)
    assert torch.equal(model(x), expected)


def test_a_constant_for_every_step_goes_through_the_cell_in_order():
    stage = DIA.for_stage(WIDTH, 3)
    means = [random(1, WIDTH, seed=t, dtype=torch.float32) for t in range(3)]
    from_maps = [
        gate.step_size(mean[:, :, None, None]).flatten(1)
        for gate, mean in zip(stage, means, strict=True)
    ]
    constants = [gate.gate(mean) for gate, mean in zip(stage, means, strict=True)]
    for ours, theirs in zip(constants, from_maps, strict=True):
        assert torch.equal(ours, theirs)


def test_the_copy_of_a_network_has_a_memory_of_its_own():
    model = network()
    twin = copy.deepcopy(model)
    assert twin[0].gates[0].memory is twin[0].gates[2].memory
    assert twin[0].gates[0].cell is twin[0].gates[2].cell
    assert twin[0].gates[0].memory is not model[0].gates[0].memory
    assert len(list(twin.parameters())) == len(list(model.parameters()))


def test_a_network_with_stages_compiles_whole():
    torch.compiler.reset()
    model = network().eval()
    x = random(2, WIDTH, 6, 6, dtype=torch.float32)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert_close(compiled(x), model(x), rtol=RTOL["batch32"], atol=RTOL["batch32"])
    assert_close(compiled(x), model(x), rtol=RTOL["batch32"], atol=RTOL["batch32"])
    assert model[0].gates[0].memory.held is None


def test_a_network_with_stages_exports_whole():
    model = network().eval()
    x = random(2, WIDTH, 6, 6, dtype=torch.float32)
    exported = torch.export.export(model, (x,)).module()
    assert_close(exported(2 * x), model(2 * x), rtol=RTOL["batch32"], atol=RTOL["batch32"])
    assert model[0].gates[0].memory.held is None


def test_the_gradient_goes_through_the_whole_stage():
    """What a step hands on, output and content alike, carries the derivative of the first rate."""
    torch.manual_seed(0)
    stage = [gate.double() for gate in DIA.for_stage(WIDTH, 3)]
    rates = [random(1, WIDTH, 1, 2, seed=t).requires_grad_() for t in range(3)]

    def last(*rates):
        for gate, rate in zip(stage, rates, strict=True):
            out = gate(rate)
        return out

    assert torch.autograd.gradcheck(last, rates)


def test_a_step_by_itself_is_refused_unless_it_is_the_first():
    stage = DIA.for_stage(WIDTH, 3)
    with pytest.raises(StepError, match=r"Step 2 of 3 .* without the step before .* of its own"):
        stage[1](torch.randn(2, WIDTH, 3, 3))
