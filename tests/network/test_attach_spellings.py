"""Additions however they are written: the code with a gate is what one would have written."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from network.attach_cases import anatomy
from network.awkward import Augmented, Base, Block, Chain, Named, Parameter
from stiffnet.network.attach import attach, detach


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
        return x + self.gate(rate, x)


class OtherSum(Block):
    def forward(self, x):
        rate = self.rate(x)
        if self.training:
            rate = rate + torch.rand_like(rate)
        return x + rate

    def by_hand(self, x):
        rate = self.rate(x)
        if self.training:
            rate = rate + torch.rand_like(rate)
        return x + self.gate(rate, x)


class InPlace(Block):
    def forward(self, x):
        rate = self.rate(x)
        rate.add_(x)
        return F.relu(rate)

    def by_hand(self, x):
        return F.relu(self.gate(self.rate(x), x) + x)


class AugmentedState(Block):
    def forward(self, x):
        x = x * 1
        x += self.rate(x)
        return x

    def by_hand(self, x):
        return x + self.gate(self.rate(x), x)


class Projected(Block):
    def __init__(self):
        super().__init__()
        self.short = nn.Conv2d(4, 4, 1)


class AugmentedByCall(Projected):
    def forward(self, x):
        out = self.rate(x)
        out += (
            self.short(x)  # a state that has no name
        )
        return out

    def by_hand(self, x):
        return self.gate(self.rate(x), self.short(x)) + self.short(x)


class RateFirst(Projected):
    def forward(self, x):
        return (self.rate(x)) + (  # both are computed here
            self.short(x)
        )

    def by_hand(self, x):
        return self.gate(self.rate(x), self.short(x)) + self.short(x)


class StateFirst(Projected):
    def forward(self, x):
        return F.relu(self.short(x) + self.rate(x))

    def by_hand(self, x):
        return F.relu(self.short(x) + self.gate(self.rate(x), self.short(x)))


class RateFirstInside(Projected):
    def forward(self, x):
        return F.relu(self.rate(x) + self.short(x))

    def by_hand(self, x):
        return F.relu(self.gate(self.rate(x), self.short(x)) + self.short(x))


class Assigned(Projected):
    def forward(self, x):
        x = out = self.short(x) - self.rate(x)
        return F.relu(out if x is out else x)

    def by_hand(self, x):
        return F.relu(self.short(x) - self.gate(self.rate(x), self.short(x)))


class Subtracted(Block):
    def forward(self, x):
        return x - self.rate(x)

    def by_hand(self, x):
        return x - self.gate(self.rate(x), x)


class OfTensor(Block):
    def forward(self, x):
        return x.add(self.rate(x)).relu()

    def by_hand(self, x):
        return (x + self.gate(self.rate(x), x)).relu()


class Functional(Block):
    def __init__(self):
        super().__init__()
        self.skip_add = torch.ao.nn.quantized.FloatFunctional()

    def forward(self, x):
        return self.skip_add.add(self.rate(x), x)

    def by_hand(self, x):
        return self.gate(self.rate(x), x) + x


class Derived(Base):
    def forward(self, x):
        return super().forward(x * 2, 0.1)

    def by_hand(self, x):
        return F.leaky_relu(x * 2 + self.gate(self.rate(x * 2), x * 2), 0.1)


class Decorated(Block):
    @torch.autocast("cpu", enabled=False)
    @torch.enable_grad()
    def forward(self, x):
        return x + self.rate(x)

    def by_hand(self, x):
        return x + self.gate(self.rate(x), x)


class Private(Block):
    def __init__(self):
        super().__init__()
        self.__factor = 0.5

    def forward(self, x):
        def inner(x):
            return x + self.rate(x) * self.__factor

        return inner(x)

    def by_hand(self, x):
        return x + self.gate(self.rate(x) * self.__factor, x)


class Renamed(Block):
    def run(self, x):
        return x + self.rate(x)

    forward = run

    def by_hand(self, x):
        return x + self.gate(self.rate(x), x)


class Other(Block):
    """Ünïcödé before the sum, to count columns in bytes."""

    def forward(self, x):
        return ("é", x)[1] + self.rate(x)

    def by_hand(self, x):
        return x + self.gate(self.rate(x), x)


KINDS = [
    Modes, OtherSum, InPlace, Augmented, AugmentedState, AugmentedByCall, RateFirst, StateFirst,
    RateFirstInside, Assigned,
    Subtracted, Named, OfTensor, Functional, Parameter, Derived, Decorated, Private, Renamed, Other,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_the_code_is_what_one_would_have_written(kind):
    for module in ("se", "stepnet"):
        torch.manual_seed(0)
        model, x = Chain(kind).eval(), torch.rand(2, 3, 6, 6)
        expected, before = model(x), anatomy(model)
        attach(model, module, example=x)
        for training in (False, True):
            model.train(training)
            y = torch.rand(3, 4, 5, 7)
            for block in model.blocks:
                torch.manual_seed(1)
                result = copy.deepcopy(block)(y.clone())
                torch.manual_seed(1)
                assert torch.equal(result, kind.by_hand(block, y.clone())), (module, training)
        with torch.no_grad():
            for block in model.blocks:
                block.norm.running_mean.zero_()
                block.norm.running_var.fill_(1)
                block.norm.num_batches_tracked.zero_()
        detach(model.eval())
        assert anatomy(model) == before
        assert torch.equal(model(x), expected)
