"""A network is borrowed politely: whatever a pass writes down is given back."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn

from stiffnet.network.attach import attach, detach
from stiffnet.trajectory.steps import steps


class Diary(nn.Module):
    """Writes into everything that a module can have, in evaluation too."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.register_buffer("exchanged", torch.zeros(()))
        self.register_buffer("written", torch.zeros(()))
        self.register_buffer("empty", None)
        self.runs, self.losses, self.cache, self.seen = 0, [], {}, {1}
        self.plain = torch.zeros(2)

    def forward(self, x):
        chance = random.random() + np.random.rand()  # noqa: NPY002
        rate = self.conv(x).relu() * (1 + chance)
        self.exchanged = self.exchanged + 1
        self.written += 1
        self.empty = rate
        self.runs += 1
        self.losses.append(rate.mean())
        self.cache[x.shape] = rate
        self.seen.add(len(x))
        self.plain += 1
        self.last = rate
        return x + rate


def test_what_a_pass_writes_down_is_given_back():
    torch.manual_seed(0)
    model, x = Diary(), torch.rand(2, 3, 6, 6)
    with torch.no_grad():
        model(x)
    before = copy.deepcopy(dict(vars(model)))
    tensors = [model.exchanged, model.written, model.plain, model.last, model.losses, model.cache]
    states = random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    assert len(steps(model, x)) == 1
    detach(attach(model, "eca", example=x))
    assert random.getstate() == states[0]
    assert (np.random.get_state()[1] == states[1]).all()  # noqa: NPY002
    now = [model.exchanged, model.written, model.plain, model.last, model.losses, model.cache]
    assert all(one is other for one, other in zip(now, tensors, strict=True))
    assert set(vars(model)) == set(before)
    for name in ("runs", "seen"):
        assert getattr(model, name) == before[name]
    for name in ("exchanged", "written", "empty"):
        assert torch.equal(getattr(model, name), before["_buffers"][name]), name
    assert torch.equal(model.plain, before["plain"])
    assert torch.equal(model.last, before["last"])
    assert len(model.losses) == len(model.cache) == 1


def test_lazy_layers_stay_made():
    model, x = nn.Sequential(nn.LazyConv2d(4, 1)), torch.rand(2, 3, 6, 6)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.body = model, nn.LazyConv2d(4, 1)

        def forward(self, x):
            x = self.stem(x)
            return x + self.body(x).relu()

    net = Net()
    assert len(steps(net, x)) == 1
    assert net.body.in_channels == 4
    assert net(x).shape == (2, 4, 6, 6)


class Merging(nn.Linear):
    """A layer of low rank beside a linear one, merged into it for evaluation, as LoRA's are."""

    def __init__(self, width, rank=2):
        super().__init__(width, width)
        self.down = nn.Parameter(0.1 * torch.randn(rank, width))
        self.up = nn.Parameter(0.1 * torch.randn(width, rank))
        self.merged = False

    def train(self, mode=True):
        super().train(mode)
        if self.merged == mode:
            self.weight.data += (-1 if mode else 1) * (self.up @ self.down).detach()
            self.merged = not mode
        return self

    def forward(self, x):
        low = 0.0 if self.merged else x @ self.down.T @ self.up.T
        return super().forward(x) + low


@pytest.mark.parametrize("frozen", [False, True])
def test_weights_that_a_mode_changes_are_given_back_bit_by_bit(frozen):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Merging(16)

        def forward(self, x):
            return x + self.layer(x).relu()

    torch.manual_seed(0)
    model, x = nn.Sequential(Block(), Block(), nn.Linear(16, 4)), torch.randn(8, 16)
    model[0].train(not frozen)
    before, merged = copy.deepcopy(model.state_dict()), [model[0].layer.merged, False]
    weights = list(model.parameters())
    assert len(steps(model, x)) == 2
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [model[0].layer.merged, model[1].layer.merged] == merged == [frozen, False]
    assert all(one is other for one, other in zip(model.parameters(), weights, strict=True))
    assert [part.training for part in (model[0], model[0].layer, model[1])] == [
        not frozen, not frozen, True,
    ]  # fmt: skip


class Exchanging(nn.Linear):
    """Puts other dictionaries in the place of its own in every pass."""

    def __init__(self):
        super().__init__(3, 3)
        self.register_buffer("count", torch.zeros(()))
        self.runs = 0

    def train(self, mode=True):
        return super().train(mode)

    def forward(self, x):
        self._buffers = {"count": self.count + 1}
        self._parameters = {name: nn.Parameter(p + 1) for name, p in self.named_parameters()}
        self.__dict__ = {**vars(self), "runs": self.runs + 1, "new": 1}
        return super().forward(x)


def test_dictionaries_that_a_pass_exchanges_are_given_back():
    model = nn.Sequential(Exchanging(), Residual()).eval()
    before = copy.deepcopy(model.state_dict())
    steps(model, torch.rand(2, 3))
    assert model[0].runs == 0
    assert not hasattr(model[0], "new")
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return x + self.linear(x).relu()
