"""What is a step, and what is none."""

import copy
import dataclasses

import pytest
import timm
import torch
from torch import nn
from torch.nn import functional as F

from stiffnet.errors import StepError
from stiffnet.network.attach import attach, attached, detach
from stiffnet.observe.measure import measure
from stiffnet.trajectory.record import record
from stiffnet.trajectory.steps import steps
from trajectory.networks import Encoder, known_rates

X = torch.rand(2, 8)
IMAGE = torch.rand(1, 3, 32, 32)


class Net(nn.Module):
    """Whatever `rule(net, x)` says, with some layers to say it with."""

    def __init__(self, rule, width=8):
        super().__init__()
        self.rule = rule
        self.a, self.b, self.c = (nn.Linear(width, width) for _ in range(3))
        self.norm = nn.LayerNorm(width)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.rule(self, x)


def found(rule, x=X):
    return steps(Net(rule), x)


def test_a_resnet_has_a_step_a_block_in_order_with_its_stages():
    model = timm.create_model("resnet18", num_classes=2)
    result = steps(model, IMAGE)
    assert [s.name for s in result] == [f"layer{i}.{j}" for i in (1, 2, 3, 4) for j in (0, 1)]
    assert [s.stage for s in result] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [s.identity for s in result] == [True, True, False, True, False, True, False, True]
    assert [s.counted for s in result] == [False, True] * 4
    assert [s.shape for s in result][2] == (128, 4, 4)
    assert result[0].branch == tuple(
        f"layer1.0.{n}" for n in ("conv1", "bn1", "act1", "conv2", "bn2")
    )


def test_a_transformer_block_has_two_steps_and_its_encoder_is_one_stage():
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=3, num_classes=2)
    result = steps(model, IMAGE)
    assert [s.name for s in result] == [
        "blocks.0", "blocks.0#1", "blocks.1", "blocks.1#1", "blocks.2", "blocks.2#1",
    ]  # fmt: skip
    assert {s.stage for s in result} == {0}
    assert [s.counted for s in result] == [False] + [True] * 5


STEPS = {
    "plain": lambda m, x: x + m.a(x).relu(),
    "the state on the right": lambda m, x: m.a(x).relu() + x,
    "in place": lambda m, x: m.a(x).relu().add_(x),
    "torch.add": lambda m, x: torch.add(x, m.a(x).relu()),
    "torch.add with keywords": lambda m, x: torch.add(x, other=m.a(x).relu()),
    "a subtraction": lambda m, x: x - m.a(x).relu(),
    "functional layers": lambda m, x: x + F.linear(x, m.a.weight).relu(),
    "after a norm": lambda m, x: m.norm(x + m.a(x).relu()),
    "a linear rate": lambda m, x: x + m.a(x),
    "a projection": lambda m, x: m.b(x) + m.a(x).relu(),
    "of a normed state": lambda m, x: m.b(m.norm(x)) + m.a(m.norm(x).relu()).relu(),
    "inside other code": lambda m, x: m.c(m.b(x).relu() + 0) if False else m.c(x + m.a(x).relu()),
    "a difference as rate": lambda m, x: x + (m.a(x).relu() - x),
    "the state rearranged": lambda m, x: (x.view(-1, 2, 4) + m.a(x).relu().view(-1, 2, 4)).flatten(
        1
    ),
}


@pytest.mark.parametrize("rule", STEPS.values(), ids=STEPS)
def test_this_is_one_step(rule):
    assert len(found(rule)) == 1


NO_STEPS = {
    "the state subtracted": lambda m, x: m.a(x).relu() - x,
    "whole numbers": lambda m, x: x.int() + m.a(x).int(),
    "a chain": lambda m, x: m.b(m.a(x).relu()),
    "a bias": lambda m, x: m.a(x).relu() + m.scale.expand(len(x), -1),
    "parallel linear branches": lambda m, x: m.a(x) + m.b(x) + m.c(x),
    "parallel linear branches and the input": lambda m, x: (m.a(x) + m.b(x) + x).relu(),
    "branches of equal weight": lambda m, x: m.a(x).relu() + m.b(x).relu(),
    "a sum beside the way on": lambda m, x: torch.cat([x, x + m.a(x).relu()], 1),
    "a rotary embedding": lambda m, x: m.a(x) * m.scale + m.a(x).flip(1) * m.scale,
    "a gate that is a sum": lambda m, x: x * torch.sigmoid(m.a(x) + m.b(x).relu()),
    "no weights": lambda m, x: x + x.relu(),
    "another shape": lambda m, x: x + m.a(x).relu().mean(1, keepdim=True),
    "concatenation": lambda m, x: torch.cat([m.a(x), m.b(x).relu()], 1),
}


@pytest.mark.parametrize("rule", NO_STEPS.values(), ids=NO_STEPS)
def test_this_is_no_step(rule):
    with pytest.raises(StepError, match="Net has no residual steps"):
        found(rule)


def test_two_branches_added_one_after_the_other_are_two_steps():
    result = found(lambda m, x: x + m.a(x).relu() + m.b(x).relu())
    assert [s.name for s in result] == ["", "#1"]


def test_parallel_branches_added_first_are_one_rate():
    [step] = found(lambda m, x: x + (m.a(x).relu() + m.b(m.norm(x)).relu()))
    assert step.branch == ("a", "norm", "b")


def test_a_gate_before_the_addition_is_named():
    assert steps(timm.create_model("seresnet18", num_classes=2), IMAGE)[0].gates == ("layer1.0.se",)
    assert found(lambda m, x: x + 0.5 * m.a(x).relu())[0].gates == ("",)
    assert found(lambda m, x: x + m.a(x).relu() * m.scale)[0].gates == ("",)
    assert found(lambda m, x: x + m.a(x).relu() / 4)[0].gates == ("",)
    assert found(lambda m, x: x + m.a(x).relu())[0].gates == ()


def pooled(x):
    return x.mean((2, 3), keepdim=True)


PIXEL = torch.rand(2, 8, 1, 1)
GATES = {  # on one pixel a gate has as many entries as the rate
    "pooled": lambda m, f, x: f * pooled(f).sigmoid(),
    "pooled, on the left": lambda m, f, x: pooled(f).sigmoid() * f,
    "pooled from the state": lambda m, f, x: f * pooled(x).sigmoid(),
    "pooled by a layer": lambda m, f, x: f * m.pool(f).sigmoid(),
    "spread again": lambda m, f, x: f * pooled(f).sigmoid().expand_as(f),
}
NO_GATES = {
    "an activation": lambda m, f, x: f * f.sigmoid(),
    "a linear unit with a gate": lambda m, f, x: f * m.other(x).sigmoid(),
    "the distance from the mean": lambda m, f, x: f * (f - pooled(f)).sigmoid(),
    "two pooled values": lambda m, f, x: pooled(f) * pooled(f).sigmoid(),
    "nothing": lambda m, f, x: f,
}


class Gated(nn.Module):
    """A step on maps with a projection for a shortcut, whose rate `gate` may scale."""

    def __init__(self, gate, *, projects=True):
        super().__init__()
        self.gate = gate
        self.body = nn.Sequential(nn.Conv2d(8, 8, 1), nn.ReLU(), nn.Conv2d(8, 8, 1))
        self.other = nn.Conv2d(8, 8, 1)
        self.shortcut = nn.Conv2d(8, 8, 1) if projects else nn.Identity()
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x):
        state = self.shortcut(x)
        return state + self.gate(self, self.body(x), state)


@pytest.mark.parametrize("projects", [True, False])
@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
@pytest.mark.parametrize("side", [1, 5])
def test_a_gate_is_one_on_maps_of_any_size(gate, projects, side):
    [step] = steps(Gated(gate, projects=projects), PIXEL.expand(2, 8, side, side))
    [plain] = steps(Gated(NO_GATES["nothing"], projects=projects), PIXEL)
    assert step.gates == ("",)
    assert (
        (step.identity, step.branch) == (plain.identity, plain.branch) == (not projects, ("body",))
    )
    assert step.rate_at.kind == "mul"


@pytest.mark.parametrize("product", NO_GATES.values(), ids=NO_GATES)
def test_a_product_that_is_no_gate_is_none_on_one_pixel_either(product):
    [step] = steps(Gated(product, projects=False), PIXEL)
    assert step.gates == ()
    assert step.rate_at == step.increment_at


def test_what_is_nothing_but_a_gate_is_still_the_branch():
    class Excited(nn.Module):
        def __init__(self):
            super().__init__()
            self.se = timm.layers.SqueezeExcite(8)

        def forward(self, x):
            return x + self.se(x)

    [step] = steps(Excited(), PIXEL.expand(2, 8, 3, 3))
    assert (step.branch, step.gates) == (("se",), ("se",))


class Add(nn.Module):
    def forward(self, x, y):
        return x + y


def test_an_addition_module_is_a_step_of_the_code_that_calls_it():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.add = nn.Linear(8, 8), Add()

        def forward(self, x):
            return self.add(x, self.a(x).relu())

    result = steps(nn.Sequential(Block(), Block()), X)
    assert [(s.name, s.branch) for s in result] == [("0.add", ("0.a",)), ("1.add", ("1.a",))]


@dataclasses.dataclass
class Output:
    state: torch.Tensor


def test_values_are_followed_through_dataclasses():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(8, 8)

        def forward(self, given):
            return Output(given.state + self.a(given.state).relu())

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block(), Block()])

        def forward(self, x):
            value = Output(x)
            for block in self.blocks:
                value = block(value)
            return value.state

    assert [s.name for s in steps(Model(), X)] == ["blocks.0", "blocks.1"]


def test_arguments_that_are_no_samples_are_left_alone():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x, mask):
            return x + self.attention(x, x, x, attn_mask=mask)[0]

    [step] = steps(Masked(), {"x": torch.rand(2, 5, 8), "mask": torch.zeros(5, 5)})
    assert step.shape == (5, 8)


def test_a_buffer_that_the_forward_pass_changes_gets_its_value_back():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(8, 8)
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count += 1
            return x + self.a(x).relu()

    model = Counting()
    steps(model, X)
    assert model.count == 0


@pytest.mark.filterwarnings(
    "ignore:.*torch.jit.*:DeprecationWarning", "ignore:.*torch.jit.*:FutureWarning"
)
def test_a_network_that_is_torchscript_as_a_whole_is_refused_for_that_reason():
    with pytest.raises(StepError, match="TorchScript as a whole"):
        steps(torch.jit.script(Residual(8)), X)


@pytest.mark.parametrize("name", ["repvgg_a0", "mobileone_s0"])
def test_sums_of_parallel_convolutions_are_no_steps(name):
    with pytest.raises(StepError, match="no residual steps"):
        steps(timm.create_model(name, num_classes=2), IMAGE)


def test_attention_biases_and_rotary_sums_are_no_steps():
    swin = timm.create_model("swin_tiny_patch4_window7_224", img_size=64, window_size=4)
    assert len(steps(swin, torch.rand(1, 3, 64, 64))) == 24  # two in each of 12 blocks
    eva = timm.create_model("eva02_tiny_patch14_224", img_size=56)
    assert len(steps(eva, torch.rand(1, 3, 56, 56))) == 24


def test_a_hugging_face_style_encoder_is_followed_through_its_arguments():
    example = {"pixel_values": torch.rand(2, 5, 4), "attention_mask": torch.zeros(2, 1, 5)}
    result = steps(Encoder(layers=3), example)
    assert [s.name for s in result] == [
        f"layer.{i}.{part}" for i in range(3) for part in ("attention_output", "output")
    ]
    assert all(s.identity and s.shape == (5, 8) for s in result)


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.layer(x))


@pytest.mark.filterwarnings(
    "ignore:.*torch.jit.*:DeprecationWarning", "ignore:.*torch.jit.*:FutureWarning"
)
def test_blocks_that_cannot_be_watched_are_read_by_what_goes_in_and_out():
    blocks = [torch.jit.script(Residual(8)) for _ in range(3)]
    result = steps(nn.Sequential(nn.Linear(4, 8), *blocks), torch.rand(2, 4))
    assert [(s.name, s.shape, s.state_at.kind) for s in result] == [
        (name, (8,), "block") for name in "123"
    ]


def test_samples_may_lie_along_any_axis_or_be_folded_into_it():
    inside = nn.MultiheadAttention(8, 2, batch_first=False)

    class SequenceFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = inside

        def forward(self, x):  # (batch, sequence, width)
            x = x.transpose(0, 1)
            x = x + self.attention(x, x, x)[0]
            return x.transpose(0, 1)

    [step] = steps(SequenceFirst(), torch.rand(6, 6, 8))
    assert (step.state_at.axis, step.state_at.entries, step.shape) == (1, 1, (6, 8))
    [step] = found(lambda m, x: (lambda y: y + m.a(y).relu())(x.flatten(0, 1)), torch.rand(3, 5, 8))
    assert (step.state_at.axis, step.state_at.entries, step.shape) == (0, 5, (5, 8))


def test_a_block_called_twice_has_its_additions_numbered_on():
    block = Residual(8)
    result = steps(nn.Sequential(block, block), X)
    assert [s.name for s in result] == ["0", "0#1"]


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(training):
    model = timm.create_model("resnet18", num_classes=2).train(training)
    model.layer1.eval()
    modes = {name: module.training for name, module in model.named_modules()}
    state = copy.deepcopy(model.state_dict())
    random = torch.get_rng_state()
    steps(model, IMAGE)
    assert {name: module.training for name, module in model.named_modules()} == modes
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert all(p.grad is None for p in model.parameters())


def test_caches_for_evaluation_do_not_outlive_it():
    model = timm.create_model("levit_128s", num_classes=2).train()
    steps(model, torch.rand(1, 3, 224, 224))
    assert all(
        not m.attention_bias_cache for m in model.modules() if hasattr(m, "attention_bias_cache")
    )


def test_wrappers_are_looked_through():
    plain = known_rates(0.5, 2.0).float()
    x = torch.rand(2, 6)
    names = [s.name for s in steps(plain, x)]
    for wrapped in (
        torch.compile(plain),
        nn.DataParallel(plain),
        torch.compile(nn.DataParallel(plain)),
    ):
        assert [s.name for s in steps(wrapped, x)] == names


@pytest.mark.parametrize("samples", [1, 5])
def test_a_network_for_one_size_of_batch_is_not_told_that_the_example_is_wrong(samples):
    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x):
            return x + self.layer(x.reshape(samples, 6))

    words = r"Fixed runs on this example and not on 2 samples.* \(shape '\[.*any number of samples"
    with pytest.raises(StepError, match=words):
        steps(Fixed(), torch.rand(samples, 6))


def test_an_example_that_does_not_fit_is_refused_with_the_reason():
    with pytest.raises(
        StepError, match=r"cannot be run on inputs of shape \(2, 5\).*Give an example"
    ):
        steps(known_rates(1.0), torch.rand(2, 5, dtype=torch.float64))
    with pytest.raises(StepError, match="example batch is empty"):
        steps(known_rates(1.0), torch.rand(0, 6))
    for nothing in (None, [], "an image"):
        with pytest.raises(StepError, match="example for Sequential holds no tensor"):
            steps(known_rates(1.0), nothing)


def test_what_is_no_network_is_refused():
    calls = (
        lambda: steps(None, X),
        lambda: record("resnet18").__enter__(),
        lambda: measure(None, [X]),
        lambda: attach(None, "se"),
        lambda: attached(None),
        lambda: detach(None),
    )
    for call in calls:
        with pytest.raises(StepError, match=r"A network is wanted, and something of type"):
            call()


class AddEither(nn.Module):
    """Only adds, as some networks' shortcut modules do; the rate comes first or second."""

    def __init__(self, rate_first: bool) -> None:
        super().__init__()
        self.rate_first = rate_first

    def forward(self, x, y):
        return y + x if self.rate_first else x + y


@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("rate_first", [False, True])
def test_a_module_that_only_adds_is_given_the_state_and_the_rate_in_any_order(
    rate_first, projected
):
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rate = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU(), nn.Conv2d(3, 3, 1))
            self.short = nn.Conv2d(3, 3, 1) if projected else nn.Identity()
            self.add = AddEither(rate_first)

        def forward(self, x):
            return self.add(self.short(x), self.rate(x))

    [step] = steps(Block(), torch.rand(2, 3, 6, 6))
    assert step.state_at.operand == int(rate_first)
    assert step.identity == (not projected)


def test_a_gate_that_reads_the_state_leaves_both_steps_of_one_sum():
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU())
            self.g = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU())

        def gate(self, rate, state):
            return rate * (rate + state).mean((2, 3), keepdim=True).sigmoid()

        def forward(self, x):
            first = x + self.gate(self.f(x), x)
            return first + self.gate(self.g(x), first)

    found = steps(Block(), torch.rand(2, 3, 6, 6))
    assert [(step.name, step.branch) for step in found] == [("", ("f",)), ("#1", ("g",))]
    assert all(step.rate_at.kind == "mul" for step in found)


@pytest.mark.parametrize(
    "same", [torch.positive, nn.functional.dropout2d, lambda y: +y, lambda y: sum([y])]
)
def test_a_gate_is_seen_behind_what_leaves_values_as_they_are(same):
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU())

        def forward(self, x):
            rate = self.f(x)
            return x + same(rate * rate.mean((2, 3), keepdim=True))

    [step] = steps(Block().eval(), torch.rand(2, 3, 6, 6))
    assert step.rate_at.kind == "mul"


class OverTime(nn.Module):
    """Steps on single moments of (samples, time, channels), flattened in one of two orders."""

    def __init__(self, order):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.Sequential(*(Moment(6) for _ in range(3)))
        self.order = order

    def forward(self, x):
        return self.blocks(x.permute(*self.order, 2).flatten(0, 1))


class Moment(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width, dtype=torch.float64)

    def forward(self, x):
        return x + self.layer(x).relu()


@pytest.mark.parametrize("samples", [1, 4])
def test_rows_of_a_sample_must_be_side_by_side(samples):
    x = torch.randn(samples, 5, 6, dtype=torch.float64)
    with pytest.raises(StepError, match="each sample has 5 rows of an axis, and they are not side"):
        steps(OverTime((1, 0)), x)
    model = OverTime((0, 1)).eval()
    with torch.no_grad(), record(model, steps(model, x)) as recording:
        model(x)
    torch.testing.assert_close(recording.trajectory.state_norms[:, 0], x.flatten(1).norm(dim=1))
