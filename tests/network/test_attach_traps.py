"""Code in which a module would be called too often, not at all, or on the wrong operand."""

import copy

import pytest
import torch
from torch import fx, nn

from network.awkward import Block, Chain
from stiffnet.errors import StepError
from stiffnet.network.attach import attach, attached, detach

X = torch.rand(2, 3, 6, 6)


class Half(nn.Module):
    """A gate that counts its calls."""

    def __init__(self, channels, channel_axis=1):
        super().__init__()
        self.calls = 0

    def forward(self, rate):
        self.calls += 1
        return rate * 0.5


def layer():
    return nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())


class Twice(Block):
    """One expression for two steps, reached on two lines."""

    def __init__(self):
        super().__init__()
        self.other = nn.Conv2d(4, 4, 1)

    def step(self, x, f):
        return x + f(x).relu()

    def forward(self, x):
        x = self.step(x, self.conv)
        return self.step(x, self.other)


class Recursive(Block):
    def forward(self, x, depth=2):
        return x if depth == 0 else self.forward(x + self.rate(x), depth - 1)


class Layers(nn.ModuleList):
    """Runs whatever children it has, a module that was attached too."""

    def __init__(self):
        super().__init__([layer(), layer()])

    def forward(self, x):
        for one in self:
            x = x + one(x)
        return x


class Residual(nn.Sequential):
    def __init__(self):
        super().__init__(layer())

    def forward(self, x):
        return x + super().forward(x)


class Add(nn.Module):
    def forward(self, a, b):
        return a + b


class BothSides(Block):
    def __init__(self):
        super().__init__()
        self.add, self.other = Add(), layer()

    def forward(self, x):
        x = self.add(x, self.rate(x))
        return self.add(self.other(x), x)


class OtherMethod(Block):
    def learn(self, x):
        return x + self.rate(x) * 2

    def judge(self, x):
        return x + self.rate(x)

    def forward(self, x):
        return self.learn(x) if self.training else self.judge(x)


def helper(x, f):
    return x + f(x)


class OtherFunction(Block):
    def forward(self, x):
        if self.training:
            return helper(x, self.rate)
        return x + self.rate(x)


class Masked(Chain):
    """Infinite results, which are as large as any difference."""

    def forward(self, x):
        return torch.cat([super().forward(x), torch.full_like(x[:, :1], -torch.inf)], 1)


class Aliased(Block):
    def forward(self, x):
        out = self.rate(x)
        same = out
        out += x
        return same


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Chain(Twice), "its code adds there in other steps too"),
        (Chain(Recursive), "its code adds there in other steps too"),
        (Chain(Layers), "what it adds is not what the expression"),
        (Chain(Residual), "what it adds is not what the expression"),
        (Chain(BothSides), "with the state now left and now right of the sum"),
        (Chain(OtherMethod), r"in training it adds elsewhere.*OtherMethod.learn"),
        (Chain(OtherFunction), r"in training it adds elsewhere.*helper"),
        (Masked(Aliased), "its code also writes to the rate"),
    ],
    ids=lambda value: value.blocks[0].__class__.__name__ if isinstance(value, Chain) else "",
)
def test_code_that_would_be_gated_wrongly_is_refused(model, reason):
    with pytest.raises(StepError, match=reason):
        attach(model.eval(), Half, example=X)
    assert attached(model) == []
    assert not [name for name, _ in model.named_modules() if "_probe" in name]


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_fused_layer_runs_its_modules_in_evaluation_too(norm_first):
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=norm_first)
    model = nn.Sequential(nn.Linear(6, 16), layer).eval()
    x = torch.rand(2, 5, 6)
    attach(model, Half, example=x)
    gates = [model.get_submodule(found.name) for found in attached(model)]
    for gate in gates:
        gate.calls = 0
    slow = model(x)
    with torch.inference_mode():
        fast = model(x)
    assert [gate.calls for gate in gates] == [2, 2]
    torch.testing.assert_close(fast, slow.detach())


class Stacked(Block):
    def forward(self, x):
        if self.training:
            return torch.stack([x, self.rate(x)]).sum(0)
        return x + self.rate(x)


class Added(Block):
    def forward(self, x):
        try:
            if self.training:
                raise NotImplementedError
            return x + self.rate(x)
        except NotImplementedError:
            return torch.add(x, self.rate(x))


@pytest.mark.parametrize("kind", [Stacked, Added])
def test_another_way_of_adding_is_refused_when_it_is_taken(kind):
    model = attach(Chain(kind).eval(), Half, example=X)
    model(X)
    with pytest.raises(StepError, match="takes another way in this call"):
        model.train()(X)


def test_lines_are_those_that_python_counts():
    class Fed(Block):
        def forward(self, x):
            # a form feed  and a separator   end no line
            return x + self.rate(x)

    model = attach(Chain(Fed).eval(), Half, example=X)
    assert len(attached(model)) == 3


class Noisy(Block):
    """Random in evaluation too: what is compared is drawn anew every time."""

    def forward(self, x):
        return x + self.rate(x) * torch.rand(len(x), 1, 1, 1)


def test_a_block_that_is_random_in_evaluation_takes_modules():
    model = attach(Chain(Noisy).eval(), Half, example=X)
    assert len(attached(model)) == 3


class Plain(Block):
    def forward(self, x):
        return x + self.rate(x)


class CopiesItself(Plain):
    """Names its own class, which has no place for a module, or takes the class that it is told."""

    kind = None

    def __deepcopy__(self, memo):
        if self.kind is None:
            return CopiesItself()
        new = self.kind.__new__(self.kind)
        new.__dict__ = copy.deepcopy(self.__dict__, memo)
        return new


def test_a_copy_that_would_lose_its_module_is_refused():
    model = attach(Chain(CopiesItself).eval(), Half, example=X)
    with pytest.raises(StepError, match=r"`__deepcopy__` of CopiesItself makes a block without"):
        copy.deepcopy(model)
    for block in model.blocks:
        block.kind = type(block)
    assert torch.equal(copy.deepcopy(model)(X), model(X))
    copy.deepcopy(detach(model))


def test_a_traced_graph_is_refused():
    model = fx.symbolic_trace(Chain(Plain).eval())
    with pytest.raises(StepError, match=r"3 of 3 steps.*graph of `torch.fx`.*before it is traced"):
        attach(model, Half, example=X)
    assert torch.equal(copy.deepcopy(model)(X), model(X))


class Fused(nn.Module):
    def forward(self, x):
        return x + self.conv(x)


class Fusing(nn.Module):
    """Becomes another block by taking its class."""

    def __init__(self):
        super().__init__()
        self.conv = layer()

    def forward(self, x):
        return x + self.conv(x)

    def fuse(self):
        self.__class__ = Fused


def test_a_block_that_takes_another_class_to_be_fused_is_refused():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), Fusing(), Fusing()).eval()
    attach(model, Half, example=X)
    with pytest.raises(
        StepError, match=r"The `fuse` of Fus.* knows nothing of the attached module"
    ):
        model[1].fuse()
