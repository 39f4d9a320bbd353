"""Blocks whose code is awkward: rewritten rightly in both modes, or refused with a reason."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from network.attach_cases import anatomy, scaled
from stiffnet.errors import StepError
from stiffnet.network import attach as attach_module
from stiffnet.network.attach import attach, attached, detach
from tolerances import RTOL


class Block(nn.Module):
    """A block whose `forward` the tests write."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.p = 0.5

    def rate(self, x):
        return self.norm(F.relu(self.conv(x)))


class Chain(nn.Module):
    """Three blocks of one kind behind a stem, called as the tests say."""

    def __init__(self, kind, call=lambda block, x: block(x)):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)
        self.blocks = nn.ModuleList(kind() for _ in range(3))
        self.call = call

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = self.call(block, x)
        return x


class Modes(Block):
    def forward(self, x):
        rate = self.rate(x)
        if self.training:
            rate = F.dropout(rate, self.p, training=True) * 2
        return x + rate

    def by_hand(self, x):
        rate = self.rate(x)
        if self.training:
            rate = F.dropout(rate, self.p, training=True) * 2
        return x + self.step_size(rate)


class InPlace(Block):
    def forward(self, x):
        rate = self.rate(x)
        rate.add_(x)
        return F.relu(rate)

    def by_hand(self, x):
        return F.relu(self.step_size(self.rate(x)) + x)


class Augmented(Block):
    def forward(self, x):
        out = self.rate(x)
        out += x
        return out

    def by_hand(self, x):
        return self.step_size(self.rate(x)) + x


class Named(Block):
    def forward(self, x, *, scale=None, keep=True):
        rate = self.rate(x)
        if scale is not None:
            rate = rate * scale
        return torch.add(input=x, other=rate) if keep else rate

    def by_hand(self, x):
        return x + self.step_size(self.rate(x))


class Parameter(Block):
    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.rand(4, 1, 1))
        self.register_buffer("shift", torch.rand(4, 1, 1))

    def forward(self, x):
        return x + (self.rate(x) + self.shift) * self.gamma

    def by_hand(self, x):
        return x + self.step_size((self.rate(x) + self.shift) * self.gamma)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", [Modes, InPlace, Augmented, Named, Parameter])
def test_the_rewritten_code_is_what_one_would_have_written(kind, training):
    torch.manual_seed(0)
    model, x = Chain(kind).eval(), torch.rand(2, 3, 6, 6)
    before = anatomy(model)
    attach(model, "se", example=x)
    model.train(training)
    y = torch.rand(2, 4, 6, 6)
    for block in model.blocks:
        torch.manual_seed(1)
        result = block(y.clone())
        torch.manual_seed(1)
        assert torch.equal(result, kind.by_hand(block, y.clone()))
    detach(model.eval())
    assert anatomy(model) == before


def test_arguments_may_come_in_tuples():
    class Pair(Block):
        def forward(self, x):
            x = torch.cat(x, dim=1) if isinstance(x, tuple) else x
            return (x + self.rate(x)).chunk(2, dim=1)

    def call(block, x):
        halves = block(tuple(x.chunk(2, dim=1)))
        return torch.cat(halves, dim=1)

    model, x = Chain(Pair, call).eval(), torch.rand(2, 3, 6, 6)
    expected = model(x)
    attach(model, "se", start="identity", example=x)
    assert scaled(model(x), expected) <= RTOL["identity"]
    with pytest.raises(StepError, match=r"traced with 2 as parts of 'x'.*attach again"):
        model.blocks[0](tuple(torch.rand(2, 4, 6, 6).split(1, dim=1)))


def test_another_call_than_the_traced_one_is_refused():
    model, x = Chain(Named).eval(), torch.rand(2, 3, 6, 6)
    attach(model, "se", example=x)
    with pytest.raises(StepError, match=r"traced with keep=True.*attach again on an `example`"):
        model.blocks[0](torch.rand(2, 4, 6, 6), keep=False)


def test_setting_what_the_code_has_read_is_refused():
    model, x = Chain(Modes).eval(), torch.rand(2, 3, 6, 6)
    attach(model, "se", example=x)
    block = model.blocks[0]
    block.p = 0.5
    block.note = "new"
    with pytest.raises(StepError, match=r"this Modes was read with p=0.5.*Detach first"):
        block.p = 0.1
    detach(model)
    block.p = 0.1


def test_a_child_may_be_exchanged():
    model, x = Chain(Parameter).eval(), torch.rand(2, 3, 6, 6)
    attach(model, "se", example=x)
    model.blocks[0].norm = nn.Identity()
    y = torch.rand(2, 4, 6, 6)
    assert torch.equal(model.blocks[0](y), Parameter.by_hand(model.blocks[0], y))


class Hesitant(Block):
    def forward(self, x):
        rate = self.rate(x)
        return x + rate if rate.sum() < 1e9 else x - rate


class Caching(Block):
    def forward(self, x):
        self.last = self.rate(x)
        return x + self.last


class OtherSum(Block):
    def forward(self, x):
        rate = self.rate(x)
        if self.training:
            rate = rate + torch.rand_like(rate)
        return x + rate


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Hesitant, "depends on the values or shapes"),
        (Caching, "makes or keeps tensors of its own"),
        (OtherSum, "adds otherwise in training"),
    ],
)
def test_code_that_cannot_be_rewritten_is_refused_and_nothing_is_changed(kind, reason):
    model, x = Chain(kind).eval(), torch.rand(2, 3, 6, 6)
    with torch.no_grad():
        model(x)
    before, keys = anatomy(model), list(model.state_dict())
    message = rf"cannot be attached to 3 of 3 steps: 'blocks.0', .*{reason}.*Nothing was changed"
    with pytest.raises(StepError, match=message):
        attach(model, "se", example=x)
    assert anatomy(model) == before
    assert list(model.state_dict()) == keys


def test_what_can_be_rewritten_may_be_chosen_beside_what_cannot():
    model, x = Chain(Block).eval(), torch.rand(2, 3, 6, 6)
    model.blocks = nn.ModuleList([Augmented(), Hesitant()]).eval()
    with pytest.raises(StepError, match=r"1 of 2 steps: 'blocks.1' \(Hesitant: .*`where=`"):
        attach(model, "se", example=x)
    attach(model, "se", example=x, where="blocks.0")
    assert [a.at for a in attached(model)] == ["blocks.0"]


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
def test_scripted_blocks_are_refused():
    model, x = Chain(Block).eval(), torch.rand(2, 3, 6, 6)
    blocks = [torch.jit.trace(Augmented().eval(), torch.rand(2, 4, 6, 6)) for _ in range(2)]
    model.blocks = nn.ModuleList(blocks)
    with pytest.raises(StepError, match=r"TorchScript, whose code cannot be changed"):
        attach(model, "se", example=x)


def test_a_block_that_runs_twice_has_one_gate_for_both_runs():
    model, x = Chain(Augmented, lambda block, x: block(block(x))).eval(), torch.rand(2, 3, 6, 6)
    expected = model(x)
    attach(model, "se", start="identity", example=x)
    assert [a.at for a in attached(model)] == ["blocks.0", "blocks.1", "blocks.2"]
    assert scaled(model(x), expected) <= RTOL["identity"]
    detach(model)
    with pytest.raises(StepError, match=r"runs several times, so that 'blocks.0', 'blocks.0#1'"):
        attach(model, "se", where="blocks.0", example=x)


def test_a_block_with_something_of_that_name_is_refused():
    class Taken(Augmented):
        step_size = 1.0

    model, x = Chain(Taken).eval(), torch.rand(2, 3, 6, 6)
    with pytest.raises(StepError, match="has something called 'step_size' already"):
        attach(model, "se", example=x)


def test_an_interrupt_in_the_middle_changes_nothing(monkeypatch):
    model, x = Chain(Augmented).eval(), torch.rand(2, 3, 6, 6)
    attach(model, "se", example=x, where="blocks.0")
    before, put = anatomy(model), attach_module.put

    def interrupted(block, plan):
        if block is model.blocks[2]:
            raise KeyboardInterrupt
        put(block, plan)

    monkeypatch.setattr(attach_module, "put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        attach(model, "eca", example=x)
    assert anatomy(model) == before
    model(x)
