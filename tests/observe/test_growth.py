"""Growth and its bounds: closed forms of linear networks, dense Jacobians of others."""

import numpy as np
import pytest
import torch
from torch import nn

from observe.gated_networks import Block, Fixed, blocks, gated, images
from stiffnet.errors import DataError, NonFiniteError, StepError
from stiffnet.observe.growth import growth
from stiffnet.stiffness.jacobian_norm import Layout, largest_singular_value
from tolerances import RTOL


class Linear(nn.Module):
    """x + α W x."""

    def __init__(self, weight, gate):
        super().__init__()
        self.inner = nn.Linear(*weight.shape, bias=False).double()
        self.inner.weight = nn.Parameter(weight)
        self.gate = gate

    def forward(self, x):
        return x + self.gate * self.inner(x)


def linear(count=4, width=5, gate=0.5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(width, width, generator=generator).double() for _ in range(count)]
    return nn.Sequential(*(Linear(weight, gate) for weight in weights)), weights


class Sum(nn.Module):
    """Only adds, as in BERT, and is given what it adds."""

    def forward(self, rate, x):
        return x + rate


class Apart(Linear):
    """The same network, whose sums are modules of their own."""

    def __init__(self, weight, gate):
        super().__init__(weight, gate)
        self.sum = Sum()

    def forward(self, x):
        return self.sum(self.inner(x) * self.gate, x)


POINTS = torch.randn(3, 5, generator=torch.Generator().manual_seed(2)).double()


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=RTOL["growth64"])


def test_a_linear_network_has_the_theorems_bound():
    model, weights = linear()
    frame = growth(model, POINTS).to_frame()
    norms = np.array([np.linalg.norm(weight.numpy(), 2) for weight in weights])
    steps = [np.linalg.norm(np.eye(5) + 0.5 * weight.numpy(), 2) for weight in weights]
    close(frame["rate_norm"], norms)
    close(frame["bound"], np.cumprod(1 + 0.5 * norms))
    close(frame["factor"], 1 + 0.5 * norms)
    close(frame["local_bound"], np.cumprod(steps))
    assert list(frame["gate_max"]) == [0.5] * 4
    close(frame["shortcut_norm"], np.ones(4))


@pytest.mark.parametrize("frozen", [False, True])
def test_a_sum_that_is_given_its_operands_apart_changes_nothing(frozen):
    plain, weights = linear()
    model = nn.Sequential(*(Apart(weight, 0.5) for weight in weights)).requires_grad_(not frozen)
    found, expected = growth(model, POINTS), growth(plain, POINTS)
    assert found.steps == ("0.sum", "1.sum", "2.sum", "3.sum")
    for name in ("log_growth", "log_bound", "log_local", "rate", "nearest"):
        close(getattr(found, name), getattr(expected, name))


def test_a_branch_that_is_detached_from_the_first_input_is_named():
    class Cut(Linear):
        def forward(self, x):
            return x + self.inner(x.detach())

    with pytest.raises(StepError, match=r"No module around the first step '0'.* detaches"):
        growth(nn.Sequential(Cut(torch.eye(5).double(), 1.0)), POINTS)


def test_its_growth_is_that_of_the_product_of_its_steps():
    model, weights = linear()
    found = growth(model, POINTS, draws=1, seed=7)
    generator = torch.Generator().manual_seed(7)
    change = torch.randn(POINTS.shape, generator=generator, dtype=torch.float64).numpy()
    product, ratios = np.eye(5), []
    for weight in weights:
        product = (np.eye(5) + 0.5 * weight.numpy()) @ product
        after = np.linalg.norm(change @ product.T, axis=1)
        ratios.append(after / np.linalg.norm(change, axis=1))
    ratios = np.array(ratios)
    close(found.log_growth, np.log(ratios).mean(axis=1))
    close(found.to_frame()["growth_max"], ratios.max(axis=1))


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 100.0])
def test_a_multiple_of_the_identity_reaches_the_bound_at_any_size(epsilon):
    model, _ = linear()
    for block in model:
        nn.init.eye_(block.inner.weight)
    frame = growth(model, POINTS, epsilon=epsilon).to_frame()
    for column in ("growth", "growth_max", "local_bound", "bound"):
        close(frame[column], 1.5 ** np.arange(1, 5))
    close(frame["share_of_bound"], np.ones(4))


@pytest.mark.parametrize("seed", range(5))
def test_growth_is_below_the_local_bound_and_that_below_the_theorems(seed):
    model, _ = linear(seed=seed)
    found = growth(model, POINTS, draws=8, seed=seed)
    slack = RTOL["growth64"]
    assert (found.log_growth <= found.log_growth_max).all()
    assert (found.log_growth_max <= found.log_local + slack).all()
    assert (found.log_local <= found.log_bound + slack).all()
    assert (found.nearest <= 1 + slack).all()


class Minus(Linear):
    """x - α W x."""

    def forward(self, x):
        return x - self.gate * self.inner(x)


def test_what_is_subtracted_is_not_added():
    model = Minus(torch.diag(torch.arange(1.0, 6.0)).double(), 0.25)
    frame = growth(model, POINTS).to_frame()
    close(frame["local_bound"], [0.75])  # of 1 - 0.25 × (1, …, 5); their sum would have 2.25
    close(frame["bound"], [1 + 0.25 * 5])


def jacobian(function, x):
    """Jacobian of one image, as a matrix."""
    dense = torch.autograd.functional.jacobian(function, x)
    return dense.reshape(-1, x.numel()).numpy()


def test_norms_at_an_image_are_those_of_dense_jacobians_also_for_gated_steps():
    model = gated(Fixed, model=blocks(2, then=nn.Tanh()))
    x = images(1, size=3)
    frame = growth(model, x, iterations=99).to_frame()
    state, bound, local = x, 1.0, 1.0
    for row, block in zip(frame.to_dict("records"), model, strict=True):
        rate = np.linalg.norm(jacobian(lambda v: block.then(block.conv(v)), state), 2)  # noqa: B023
        bound *= 1 + 2.0 * rate
        local *= np.linalg.norm(jacobian(block, state), 2)
        close([row["rate_norm"], row["bound"], row["local_bound"]], [rate, bound, local])
        assert row["gate_max"] == pytest.approx(2.0, rel=RTOL["float64"])
        state = block(state).detach()


class Down(nn.Module):
    """A projected shortcut, an addition in place and an activation in place behind it."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(4, 6, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1)
        )
        self.shortcut = nn.Conv2d(4, 6, 1, stride=2)

    def forward(self, x):
        out = self.first(x)
        out += self.shortcut(x)
        return nn.functional.relu_(out)


def test_a_shortcut_counts_with_its_norm_and_an_activation_with_the_step_behind_it():
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = nn.Sequential(Down(), Block(6)).double()
    x = images(1, size=4)
    frame = growth(model, x, iterations=99).to_frame()
    down, block = model
    total = down.first(x) + down.shortcut(x)
    expected = [
        [jacobian(down.shortcut, x), jacobian(down.first, x)],
        [
            jacobian(torch.relu, total.detach()),
            jacobian(lambda v: block.conv(torch.relu(v)), total.detach()),
        ],
    ]
    for row, matrices in zip(frame.to_dict("records"), expected, strict=True):
        norms = [np.linalg.norm(matrix, 2) for matrix in matrices]
        close([row["shortcut_norm"], row["rate_norm"]], norms)


def test_the_norm_of_each_sample_is_its_own():
    x = images(3, size=2)
    model = blocks(1, then=nn.Tanh())
    alone = [growth(model, one[None], iterations=99).rate[0] for one in x]
    close(growth(model, x, iterations=99).rate, [np.mean(alone)])


@pytest.mark.parametrize("rank", [0, 1, 4])
def test_largest_singular_values(rank):
    generator = torch.Generator().manual_seed(rank)
    left, right = (torch.randn(6, 7, rank, generator=generator).double() for _ in range(2))
    matrices = left @ right.mT
    found = largest_singular_value(
        lambda v: torch.einsum("nij,nj->ni", matrices, v),
        lambda u: torch.einsum("nij,ni->nj", matrices, u),
        torch.randn(6, 7, generator=generator).double(),
        iterations=20,
    )
    np.testing.assert_allclose(
        found, np.linalg.norm(matrices.numpy(), 2, axis=(1, 2)), rtol=RTOL["float64"]
    )


@pytest.mark.parametrize("width", [1, 4, 24])
def test_an_identity_is_exhausted_at_once(width):
    start = torch.randn(3, width, generator=torch.Generator().manual_seed(0)).double()
    found = largest_singular_value(lambda v: v, lambda u: u, start, iterations=50)
    np.testing.assert_allclose(found, np.ones(3), rtol=RTOL["float64"])


def test_rows_and_back_for_any_place_of_the_samples():
    value = torch.arange(48.0).reshape(2, 6, 4)
    layout = Layout(axis=1, entries=2)
    rows = layout.rows(value)
    assert rows.shape == (3, 16)
    assert set(rows[1].tolist()) == set(value[:, 2:4].flatten().tolist())
    assert torch.equal(layout.like(rows, value), value)


def test_the_network_is_left_as_it_was():
    model = gated("dia").train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    found = growth(model, images(2), draws=1, iterations=4)
    assert ((found.gate > 0) & (found.gate < 1)).all()
    assert all(module.training for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_the_same_seed_gives_the_same_numbers():
    model = blocks()
    one, other = (growth(model, images(2), iterations=3).to_frame() for _ in range(2))
    assert one.equals(other)


def test_a_network_without_steps_is_refused():
    with pytest.raises(StepError, match="no residual steps"):
        growth(nn.Sequential(nn.Linear(3, 3)), torch.rand(1, 3))


class Parallel(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = Block(4), Block(4)

    def forward(self, x):
        return torch.cat([self.one(x), self.other(x)], dim=1)


def test_steps_that_form_no_chain_are_refused():
    with pytest.raises(StepError, match="'other' does not follow from the step before"):
        growth(Parallel().double(), images(1))


@pytest.mark.parametrize("options", [{"epsilon": 0.0}, {"draws": 0}, {"iterations": 0}])
def test_senseless_numbers_are_refused(options):
    with pytest.raises(DataError, match="Give a number above zero"):
        growth(blocks(), images(1), **options)


def test_what_is_not_a_number_is_named():
    bad = images(3)
    bad[1] = torch.inf
    with pytest.raises(NonFiniteError, match=r"image 1 is NaN or infinite at step '0'"):
        growth(blocks(), bad)


class SequenceFirst(nn.Module):
    """Steps on (length, samples, width), of a network that is given (samples, length, width)."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def forward(self, x):
        return self.steps(x.transpose(0, 1)).transpose(0, 1)


@pytest.mark.parametrize("length", [2, 3, 4, 6, 7])
def test_which_axis_counts_the_images_is_known_and_not_guessed(length):
    """Places that do not look at one another: the order of the axes changes nothing."""
    model, _ = linear()
    images = torch.randn(3, length, 5, generator=torch.Generator().manual_seed(3)).double()
    first, last = growth(model, images, seed=1), growth(SequenceFirst(model), images, seed=1)
    assert first.images == last.images == 3
    for column in ("rate_norm", "bound", "local_bound", "growth", "growth_max"):
        close(last.to_frame()[column], first.to_frame()[column])
