"""Values are followed wherever they are computed, or it is said that they cannot be."""

import threading

import numpy as np
import pytest
import torch
import torchvision
from torch import nn
from torch.utils.checkpoint import checkpoint

from stiffnet import measure
from stiffnet.errors import StepError
from stiffnet.trajectory.record import record
from stiffnet.trajectory.steps import steps

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*torch.jit.*:DeprecationWarning", "ignore:.*torch.jit.*:FutureWarning"
)
X = torch.rand(4, 8)
TABLE = torch.rand(8)


class Net(nn.Module):
    """Whatever `rule(net, x)` says, with some layers to say it with."""

    def __init__(self, rule):
        super().__init__()
        self.rule = rule
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.rand(8))

    def forward(self, x):
        return self.rule(self, x)


def scripted(function):
    return torch.jit.script(function)


def swish(x: torch.Tensor) -> torch.Tensor:
    return x * x.sigmoid()


def add_relu(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y.relu()


def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * y


def layer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(x, weight).relu()


class Clamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clamp(min=0)


def in_a_thread(function, x):
    made = []
    thread = threading.Thread(target=lambda: made.append(function(x)))
    thread.start()
    thread.join()
    return made[0]


def under_autocast(m, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x + m.a(x).relu()


def written_in_parts(m, x):
    whole = torch.zeros_like(x)
    whole[:, :4].copy_(m.a(x).relu()[:, :4])
    return x + whole


FOLLOWED = {
    "a scripted activation": lambda m, x: x + scripted(swish)(m.a(x)),
    "a scripted activation inside": lambda m, x: x + m.b(scripted(swish)(m.a(x))),
    "a scripted layer": lambda m, x: x + scripted(layer)(x, m.a.weight),
    "a scripted stem": lambda m, x: (lambda y: y + m.a(y).relu())(scripted(swish)(m.b(x))),
    "an autograd function": lambda m, x: x + m.b(Clamp.apply(m.a(x))),
    "vmap": lambda m, x: x + m.b(torch.vmap(lambda row: row.sin() * 2)(m.a(x))),
    "operators": lambda m, x: torch.ops.aten.add.Tensor(x, torch.ops.aten.relu(m.a(x))),
    "data": lambda m, x: x.data + m.a(x).data.relu(),
    "no_grad inside": lambda m, x: x + torch.no_grad()(lambda: m.a(x).relu())(),
    "checkpoint": lambda m, x: x + checkpoint(lambda v: m.a(v).relu(), x, use_reentrant=False),
    "autocast": under_autocast,
    "written in parts": written_in_parts,
    "copied": lambda m, x: x + m.a(torch.empty_like(x).copy_(x)).relu(),
    "a constant besides": lambda m, x: x + TABLE.expand(len(x), -1) + m.a(x).relu(),
}


@pytest.mark.parametrize("rule", FOLLOWED.values(), ids=FOLLOWED)
def test_a_step_is_found_wherever_its_rate_is_computed(rule):
    model = Net(rule).eval()
    [step] = steps(model, X)
    assert step.identity
    assert step.gates == ()
    with record(model) as recording, torch.no_grad():
        model(X)
    assert recording.trajectory.rate_norms.shape == (4, 1)


UNSEEN = {
    "a scripted sum": (lambda m, x: scripted(add_relu)(x, m.a(x)), "cannot be watched"),
    "a scripted gate": (
        lambda m, x: x + scripted(scaled)(m.a(x).relu(), m.scale),
        "step size is multiplied inside a function that cannot be watched",
    ),
    "NumPy": (lambda m, x: x + torch.from_numpy(np.sin(m.a(x).numpy())), "cannot be followed"),
    "NumPy before a layer": (
        lambda m, x: x + m.b(torch.from_numpy(np.sin(m.a(x).numpy()))),
        "cannot be followed",
    ),
    "NumPy before the step": (
        lambda m, x: (lambda y: y + m.b(y).relu())(torch.from_numpy(np.sin(m.a(x).numpy()))),
        "cannot be followed",
    ),
    "a list": (lambda m, x: x + m.b(torch.tensor(m.a(x).tolist())), "cannot be followed"),
    "another thread": (
        lambda m, x: x + in_a_thread(lambda v: m.a(v).relu(), x),
        "cannot be followed",
    ),
    "a sum under vmap": (
        lambda m, x: torch.vmap(lambda row: row + m.a(row).relu())(x),
        "cannot be followed",
    ),
    "addcmul": (lambda m, x: torch.addcmul(x, m.a(x).relu(), m.scale), "added by `addcmul`"),
    "addmm": (lambda m, x: torch.addmm(x, m.a(x).relu(), m.b.weight), "added by `addmm`"),
}


@pytest.mark.parametrize(("rule", "reason"), UNSEEN.values(), ids=UNSEEN)
def test_a_step_that_cannot_be_measured_is_refused_for_that_reason(rule, reason):
    with pytest.raises(StepError, match=f"In the code of Net .*{reason}"):
        steps(Net(rule), X)


SHAPES_ONLY = {
    "zeros_like": lambda m, x: torch.zeros_like(x),
    "counted ones": lambda m, x: torch.ones_like(x).cumsum(1),
    "new_full": lambda m, x: x.new_full(x.shape, 2.0),
    "full_like": lambda m, x: torch.full_like(x, 2.0),
    "noise": lambda m, x: torch.randn_like(x),
    "expand_as": lambda m, x: m.scale.expand_as(x),
    "type_as": lambda m, x: m.scale.repeat(len(x), 1).type_as(x),
    "to": lambda m, x: m.scale.repeat(len(x), 1).to(x),
    "view_as": lambda m, x: m.scale.repeat(len(x)).view_as(x),
    "written over": lambda m, x: x.clone().zero_(),
    "filled": lambda m, x: x.clone().fill_(3.0),
    "a copy of a constant": lambda m, x: torch.empty_like(x).copy_(m.scale),
    "its length": lambda m, x: torch.arange(x.numel()).view(x.shape).float(),
}


@pytest.mark.parametrize("made", SHAPES_ONLY.values(), ids=SHAPES_ONLY)
def test_what_goes_by_the_shape_of_the_state_is_no_rate(made):
    with pytest.raises(StepError, match="Net has no residual steps"):
        steps(Net(lambda m, x: x + m.a(made(m, x)).relu()), X)


class Positions(nn.Module):
    """Learned positions that are given the state and read its length."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(16, 8)

    def forward(self, x):
        return self.table(torch.arange(x.shape[1]).expand(len(x), -1))


class Table(nn.Embedding):
    """The same as one module, in the style of BART."""

    def __init__(self):
        super().__init__(16, 8)

    def forward(self, x):
        return super().forward(torch.arange(x.shape[1]).expand(len(x), -1))


class Learned(nn.Module):
    def __init__(self, positions, words=False):
        super().__init__()
        self.words = nn.Embedding(16, 8) if words else nn.Identity()
        self.positions, self.layer = positions, nn.Linear(8, 8)

    def forward(self, x):
        x = self.words(x) + self.positions(x)
        return x + self.layer(x).relu()


@pytest.mark.parametrize("positions", [Positions, Table])
def test_positions_are_no_step(positions):
    [step] = steps(Learned(positions()), torch.rand(2, 5, 8))
    assert step.branch == ("layer",)
    [step] = steps(Learned(positions(), words=True), torch.randint(16, (2, 5)))
    assert step.branch == ("layer",)


def test_positions_that_are_counted_in_the_tokens_are_no_step():
    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(16, 8), nn.Embedding(16, 8)
            self.layer = nn.Linear(8, 8)

        def forward(self, tokens):
            x = self.words(tokens) + self.places((tokens > 0).cumsum(1))
            return x + self.layer(x).relu()

    [step] = steps(Counted(), torch.randint(16, (2, 5)))
    assert step.branch == ("layer",)


def test_what_a_module_keeps_and_does_not_return_is_followed():
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x):
            self.kept = self.layer(x).relu()

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Keeps()

        def forward(self, x):
            self.inner(x)
            return x + self.inner.kept

    [step] = steps(Network(), X)
    assert (step.branch, step.identity) == (("inner",), True)


def test_a_block_that_is_filled_in_place_by_a_module_is_followed():
    class Fills(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x, into):
            into.copy_(self.layer(x).relu())

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Fills()

        def forward(self, x):
            rate = torch.zeros_like(x)
            self.inner(x, rate)
            return x + rate

    [step] = steps(Network(), X)
    assert (step.branch, step.identity) == (("inner",), True)


def test_a_scripted_stage_of_several_steps_is_refused():
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.relu(self.layer(x))

    stages = [torch.jit.script(nn.Sequential(Residual(), Residual())) for _ in range(2)]
    with pytest.raises(StepError, match=r"'0' is TorchScript and has 2 steps.*plain Python"):
        steps(nn.Sequential(*stages), X)
    one = nn.Sequential(nn.Linear(8, 8), torch.jit.script(Residual()))
    with pytest.raises(StepError, match=r"'1' is TorchScript and has 1 step.*plain Python"):
        steps(one, X)


@pytest.mark.slow
def test_a_detector_is_given_a_list_of_images():
    model = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, min_size=64, max_size=64
    ).eval()
    images = [torch.rand(3, 64, 64), torch.rand(3, 64, 64)]
    names = [step.name for step in steps(model, images)]
    assert names == [step.name for step in steps(model, (images,))]
    assert len(names) == 10
    assert len(measure(model, [{"images": images}]).steps) == 10
