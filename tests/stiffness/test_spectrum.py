"""Eigenvalues of Jacobians: closed forms, and every method against the plain one."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from stiffnet.errors import NonFiniteError, ShapeChangesError, StepError
from stiffnet.stiffness.cut import Traced
from stiffnet.stiffness.eigen import eigenvalues
from stiffnet.stiffness.planes import counts
from stiffnet.stiffness.spectrum import spectrum_of

DIRECT = ("dense", "reduced")
CLOSE = 1e-10  # float64, of the largest eigenvalue


def linear(matrix):
    """x ↦ M x on a batch of one."""
    weight = torch.as_tensor(np.asarray(matrix, dtype=float))
    return lambda x: x @ weight.T


def point(size, *, seed=0):
    return torch.randn(1, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def as_set(values):
    return np.sort_complex(np.round(values, 9) + 0.0)


def with_eigenvalues(values, seed=0):
    """A matrix that is not normal, with these eigenvalues."""
    basis = np.random.default_rng(seed).standard_normal((len(values), len(values)))
    return basis @ np.diag(values) @ np.linalg.inv(basis)


@pytest.mark.parametrize("method", DIRECT)
def test_a_linear_function_has_the_eigenvalues_of_its_matrix(method):
    wanted = [-3.0, -1.0, 0.5, 2.0, 4.0]
    found = spectrum_of(linear(with_eigenvalues(wanted)), point(5), method=method)
    np.testing.assert_allclose(as_set(found.values), wanted, atol=1e-8)
    assert (found.count, found.negative) == (5, 2)
    assert found.outside == 4  # all but -1, the disc's centre: -3 is at distance 2


@pytest.mark.parametrize("method", [*DIRECT, "krylov"])
def test_a_rotation_turns_by_its_angle(method):
    c, s = math.cos(0.3), math.sin(0.3)
    found = spectrum_of(linear([[c, -s], [s, c]]), point(2), method=method)
    np.testing.assert_allclose(as_set(found.values), as_set(np.exp([-0.3j, 0.3j])), atol=CLOSE)
    assert found.norm == pytest.approx(1.0)


@pytest.mark.parametrize("method", DIRECT)
@pytest.mark.parametrize("size", [2, 7, 40])
def test_a_nilpotent_function_has_zeros_and_nothing_near_them(method, size):
    found = spectrum_of(linear(np.eye(size, k=1)), point(size), method=method)
    assert not found.values.any()
    assert (found.negative, found.count, found.condition) == (0, size, None)


@pytest.mark.parametrize("method", [*DIRECT, "krylov"])
@pytest.mark.parametrize("function", [torch.zeros_like, lambda x: 0 * x])
def test_a_function_that_does_not_move_has_zeros(method, function):
    found = spectrum_of(function, point(80), method=method)
    assert not found.values.any()
    assert found.norm == 0


@pytest.mark.parametrize("method", [*DIRECT, "krylov"])
def test_a_triangular_function_has_its_diagonal(method):
    """Far from normal: a routine that does not see the form gives noise of the size of 1e-2."""
    random = np.random.default_rng(0)
    for diagonal in (np.zeros(24), random.choice([0.0, 0.3], 24), np.linspace(-0.1, 0.4, 24)):
        matrix = np.triu(random.standard_normal((24, 24)), 1) + np.diag(diagonal)
        order = random.permutation(24)
        found = spectrum_of(linear(matrix[np.ix_(order, order)]), point(24), method=method)
        np.testing.assert_array_equal(np.sort(found.values.real), diagonal[diagonal.argsort()])
        assert not found.values.imag.any()


@pytest.mark.parametrize("scale", [1e160, 1e8, 1e-12, 1e-200])
def test_eigenvalues_scale_with_the_function(scale):
    matrix = with_eigenvalues([-3.0, -1.0, 0.5, 2.0])
    np.testing.assert_allclose(
        as_set(eigenvalues(scale * matrix) / scale), [-3, -1, 0.5, 2], rtol=1e-9
    )


@pytest.mark.parametrize("method", DIRECT)
@pytest.mark.parametrize("unit", [1e4, 1e8, 1e12])
def test_eigenvalues_do_not_depend_on_the_units_of_the_coordinates(method, unit):
    """D M D⁻¹ has those of M: a zero that was guessed from a small number would show."""
    matrix, units = with_eigenvalues([-3.0, -1.0, 0.5, 2.0]), np.array([1, unit, 1, 1 / unit])
    found = spectrum_of(linear(matrix * units[:, None] / units), point(4), method=method)
    np.testing.assert_allclose(as_set(found.values), [-3, -1, 0.5, 2], rtol=1e-8)


def test_both_ends_of_an_orthogonal_function_are_found():
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((130, 130)))[0]
    found, plain = spectrum_of(linear(turn), point(130), method="krylov"), np.linalg.eigvals(turn)
    assert found.values.real.min() == pytest.approx(plain.real.min())
    assert found.values.real.max() == pytest.approx(plain.real.max())


@pytest.mark.parametrize("method", [*DIRECT, "krylov"])
def test_a_block_of_which_little_passes_behind_the_sum(method):
    """Fewer coordinates are alive behind the sum than count inside of the branch."""
    random = np.random.default_rng(0)
    matrix = -0.9 * np.eye(500) + 0.01 * random.standard_normal((500, 500))
    low = torch.zeros(500).double()
    low[450:] = 20.0
    weight = torch.from_numpy(matrix)

    def block(x):
        return torch.relu(x + x @ weight.T + low - 10)

    plain = np.linalg.eigvals(torch.func.jacrev(block)(point(500))[0, :, 0].numpy())
    found = spectrum_of(block, point(500), method=method)
    assert found.values.real.max() == pytest.approx(plain.real.max())
    assert np.abs(found.values).max() == pytest.approx(np.abs(plain).max())
    if method == "reduced":
        assert found.plan.inner == 50
        assert math.isfinite(found.condition)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_lower_precision_inside_is_lifted(kind):
    """Rank 4 of 16; in float32 the twelve zeros would be noise, half of it below zero."""
    random = np.random.default_rng(0)
    down, up = (torch.from_numpy(random.standard_normal(s)) for s in ((16, 4), (4, 16)))
    wanted = np.linalg.eigvals((down @ up).numpy().T)
    for method in DIRECT:
        found = spectrum_of(
            lambda x: (x.to(kind).double() @ down).to(kind).double() @ up,
            point(16), method=method,
        )  # fmt: skip
        assert (found.values != 0).sum() == 4
        assert found.negative == (wanted.real < -1e-9).sum()


def drawn(x):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return x * torch.rand(x.shape, dtype=x.dtype)


@pytest.mark.parametrize(
    "function",
    [drawn, lambda x: x * torch.from_numpy(np.abs(x.detach().numpy()))],
    ids=["a seed of its own", "NumPy"],
)
def test_what_cannot_be_followed_is_refused(function):
    with pytest.raises(StepError, match="cannot be followed"):
        spectrum_of(function, point(30), method="dense")


def test_zeros_are_counted_where_they_are_defective():
    """A Jordan block of zeros beside others: a plain routine gives noise of 1e-16 ** (1 / 5)."""
    blocks = np.zeros((9, 9))
    blocks[:5, :5] = np.eye(5, k=1)
    blocks[5:, 5:] = with_eigenvalues([1.0, 2.0, -1.0, -2.0])
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((9, 9)))[0]
    matrix = turn @ blocks @ turn.T
    assert (np.abs(np.linalg.eigvals(matrix)) > 1e-6).sum() > 4
    found = eigenvalues(matrix)
    assert (found != 0).sum() == 4
    np.testing.assert_allclose(as_set(found[found != 0]), [-2, -1, 1, 2], atol=1e-8)


def test_the_condition_of_an_eigenvalue_is_that_of_its_vectors():
    matrix = with_eigenvalues([-5.0, 1.0, 2.0])
    values, right = np.linalg.eig(matrix)
    left = np.linalg.inv(right).conj().T
    i = int(np.abs(values).argmax())
    wanted = np.linalg.norm(right[:, i]) * np.linalg.norm(left[:, i])
    for method in DIRECT:
        found = spectrum_of(linear(matrix), point(3), method=method)
        assert found.condition == pytest.approx(wanted, rel=1e-6)
        assert found.norm == pytest.approx(np.linalg.norm(matrix, 2))


class Basic(nn.Module):
    def __init__(self, channels=4, inner=4, groups=1, act=F.relu):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, inner, 3, padding=1, groups=groups)
        self.norm = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, channels, 3, padding=1)
        self.act = act

    def forward(self, x):
        return self.conv2(self.act(self.norm(self.conv1(x))))


class Squeezed(nn.Module):
    """A branch with a gate that reads the branch, or the state."""

    def __init__(self, of_state):
        super().__init__()
        self.branch, self.gate, self.of_state = Basic(), nn.Linear(4, 4), of_state

    def forward(self, x):
        y = self.branch(x)
        pooled = (x if self.of_state else y).mean((2, 3))
        return y * torch.sigmoid(self.gate(pooled))[:, :, None, None]


class Strided(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(4, 6, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(6, 4, 2, stride=2)

    def forward(self, x):
        return self.up(F.relu(self.down(x)))


class PreActivated(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.rest = nn.BatchNorm2d(4), Basic()

    def forward(self, x):
        return self.rest(self.norm(x).relu_())


class Mixer(nn.Module):
    """Attention over positions, with a norm; no flat part anywhere."""

    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(4), nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        y = self.norm(x.flatten(2).transpose(1, 2))
        y = self.attention(y, y, y)[0]  # with weights, so that it is plain products
        return y.transpose(1, 2).reshape(x.shape)


class Written(nn.Module):
    """A basic branch whose activation is a line of code."""

    def __init__(self, line):
        super().__init__()
        self.branch, self.line = Basic(), line

    def forward(self, x):
        return self.branch(self.line(x))


BRANCHES = {
    "basic": Basic,
    "detached": lambda: Written(lambda x: x.detach().relu() + 0.1 * x),
    "bounded by itself": lambda: Written(lambda x: torch.clamp(x, max=x.mean())),
    "spread": lambda: Written(lambda x: x.mean((2, 3), keepdim=True).expand_as(x)),
    "bottleneck": lambda: Basic(inner=2),
    "inverted": lambda: Basic(inner=12, act=F.relu6),
    "grouped": lambda: Basic(groups=2),
    "hard": lambda: Basic(act=F.hardswish),
    "smooth": lambda: Basic(inner=2, act=F.gelu),
    "strided": Strided,
    "pre-activated": PreActivated,
    "gate of the rate": lambda: Squeezed(of_state=False),
    "gate of the state": lambda: Squeezed(of_state=True),
    "attention": Mixer,
}
BLOCKS = {
    "branch": lambda f: f,
    "spread sum": lambda f: lambda x: x + f(x).mean((2, 3), keepdim=True),
    "sum": lambda f: lambda x: x + f(x),
    "activated sum": lambda f: lambda x: F.relu(f(x) + x),
    "smooth sum": lambda f: lambda x: F.gelu(x + f(x)),
    "written sum": lambda f: lambda x: f(x).add_(x).relu_(),
    "projected sum": lambda f: lambda x: 0.5 * x + f(x),
}


def made(name, seed=0):
    torch.manual_seed(seed)
    module = BRANCHES[name]().double().eval().requires_grad_(requires_grad=False)
    for each in module.modules():
        if isinstance(each, nn.BatchNorm2d):
            each.running_mean.normal_(0, 0.3)
            each.bias.normal_(0, 0.3)
    return module


@pytest.mark.parametrize(
    ("name", "block"),
    [*((name, block) for name in BRANCHES for block in ("branch", "activated sum")),
     *(("basic", block) for block in BLOCKS if block not in ("branch", "activated sum"))],
)  # fmt: skip
def test_methods_agree(name, block):
    function = BLOCKS[block](made(name))
    side = 5 + (name == "strided")
    x = torch.randn(1, 4, side, side, dtype=torch.float64)
    n, unit = x.numel(), torch.eye(x.numel(), dtype=torch.float64).reshape(-1, *x.shape)
    step = 1e-4 if name == "detached" else 0.0  # autograd does not see what is detached
    if step:  # piecewise linear, so that differences are exact but for rounding
        columns = [(function(x + step * e) - function(x - step * e)) / (2 * step) for e in unit]
        jacobian = torch.stack([column.flatten() for column in columns], 1).numpy()
    else:
        jacobian = torch.func.jacrev(lambda y: function(y).flatten())(x).reshape(n, n).numpy()
    plain = np.linalg.eigvals(jacobian)
    dense, reduced, krylov = (
        spectrum_of(function, x, method=method) for method in (*DIRECT, "krylov")
    )
    size = np.abs(plain).max()
    for found in (dense, reduced, krylov):
        assert found.values.real.max() == pytest.approx(plain.real.max(), abs=1e-7 * size)
        assert found.values.real.min() == pytest.approx(plain.real.min(), abs=1e-7 * size)
        assert np.abs(found.values).max() == pytest.approx(size, rel=1e-7)
        assert found.norm == pytest.approx(np.linalg.norm(jacobian, 2), rel=1e-7)
    assert (dense.values != 0).sum() == (reduced.values != 0).sum()
    assert (dense.negative, dense.outside) == (reduced.negative, reduced.outside)
    end = plain[np.abs(plain.real).argmax()]
    away = np.minimum(np.abs(plain - end), np.abs(plain - end.conj()))
    if (away < 1e-3 * size).sum() == (1 if end.imag == 0 else 2):  # alone, or with its conjugate
        assert dense.condition == pytest.approx(reduced.condition, rel=1e-5)
    assert reduced.values.sum() == pytest.approx(np.trace(jacobian), abs=1e-8 * n * size)
    assert reduced.plan.inner <= n
    if name in ("bottleneck", "strided") and block in ("branch", "sum", "activated sum"):
        assert reduced.plan.inner < n / 2


@pytest.mark.parametrize("method", [*DIRECT, "krylov"])
def test_a_branch_that_is_dead_here_has_zeros_and_its_block_ones(method):
    def dead(x):
        return torch.relu(-x.abs() - 1) @ torch.ones(80, 80, dtype=torch.float64)

    assert not spectrum_of(dead, point(80), method=method).values.any()
    block = spectrum_of(lambda x: x + dead(x), point(80), method=method)
    assert set(block.values.tolist()) <= {0, 1}
    assert block.values.real.min() == 1
    constant = spectrum_of(lambda x: torch.ones(1, 80).double(), point(80), method=method)
    assert not constant.values.any()


def test_a_block_without_an_activation_is_one_more_than_its_branch():
    branch, x = made("basic"), torch.randn(1, 4, 6, 6, dtype=torch.float64)
    of_branch = spectrum_of(branch, x, method="reduced").values
    of_block = spectrum_of(lambda y: y + branch(y), x, method="reduced").values
    np.testing.assert_allclose(as_set(of_block), as_set(1 + of_branch), atol=1e-8)


def test_a_cut_holds_the_function_together():
    for name in BRANCHES.keys() - {"detached"}:  # autograd does not see all of that one
        function, x = made(name), torch.randn(1, 4, 6, 6, dtype=torch.float64)
        cut = Traced(function, x).cut()
        torch.testing.assert_close(cut.outer(cut.at), function(x).flatten())
        torch.testing.assert_close(cut.inner(x), cut.at)
        a, b = torch.func.jacrev(cut.outer)(cut.at), torch.func.jacrev(cut.inner)(x)
        whole = torch.func.jacrev(lambda y, f=function: f(y).flatten())(x)
        size = x.numel()
        torch.testing.assert_close(a @ b.reshape(cut.size, size), whole.reshape(len(a), size))


def test_the_cut_is_behind_an_activation_where_that_is_narrow():
    x = torch.randn(1, 4, 6, 6, dtype=torch.float64)
    cut = Traced(made("bottleneck"), x).cut()
    assert cut.where == "relu"
    assert cut.size < cut.whole == 2 * 6 * 6
    assert Traced(made("smooth"), x).cut().size == 2 * 6 * 6
    of_state = Traced(made("gate of the state"), x).cut()
    assert "relu" in of_state.where
    assert "mean" in of_state.where


@pytest.mark.parametrize("method", DIRECT)
def test_circular_padding_has_the_eigenvalues_of_a_circulant_matrix(method):
    """Which are the Fourier transform of the kernel."""
    kernel = torch.tensor([0.3, -1.1, 0.7], dtype=torch.float64)
    layer = nn.Conv1d(1, 1, 3, padding=1, padding_mode="circular", bias=False).double()
    layer.weight.data[0, 0] = kernel
    found = spectrum_of(layer, point(9)[None], method=method)
    angles = 2j * np.pi * np.arange(9) / 9
    wanted = sum(float(kernel[k]) * np.exp((k - 1) * angles) for k in range(3))
    np.testing.assert_allclose(as_set(found.values), as_set(wanted), atol=CLOSE)


@pytest.mark.parametrize("method", DIRECT)
def test_what_a_step_writes_into_its_own_values_is_followed(method):
    """The first half is doubled, and the second is the first."""

    def function(x):
        made = x.new_empty(x.shape)
        made[:, 0:2] = 2 * x[:, :2]
        made[:, 2:4] = x[:, :2]
        return made

    found = spectrum_of(function, point(4), method=method)
    np.testing.assert_allclose(as_set(found.values), [0, 0, 2, 2], atol=CLOSE)


def test_planes_are_eigenvalues_of_slices():
    function, x = made("basic"), torch.randn(1, 4, 6, 6, dtype=torch.float64)
    jacobian = torch.func.jacrev(function)(x)[0, ..., 0, :, :, :]
    wanted = torch.linalg.eigvals(jacobian).flatten().numpy()
    found = spectrum_of(function, x, method="planes")
    assert found.count == len(wanted) == 4**2 * 6**3
    assert counts((4, 6, 6), (4, 6, 6)) == (jacobian.numel(), len(wanted))
    assert found.values.real.max() == pytest.approx(wanted.real.max())
    assert found.values.real.min() == pytest.approx(wanted.real.min())
    assert found.negative == (wanted.real < -1e-9).sum()
    assert found.outside == (np.abs(1 + wanted) > 1 + 1e-9).sum()


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_planes_of_nilpotent_slices_have_no_sign(size):
    """All eigenvalues are zero; rounding moves them by the size-th root of 1e-16."""
    draws = torch.Generator().manual_seed(size)
    random, basis = torch.randn(2, size, size, dtype=torch.float64, generator=draws)
    turn = torch.linalg.qr(basis)[0]
    nilpotent = turn @ torch.triu(random, 1) @ turn.T
    found = spectrum_of(
        lambda x: (nilpotent * x).sum((2, 3), keepdim=True),
        torch.ones(1, 1, size, size, dtype=torch.float64),
        method="planes",
    )
    assert (found.count, found.negative, found.outside) == (size, 0, 0)
    assert not found.values.any()


def test_planes_are_as_many_as_published(reference_rows):
    """All 24 rows of the block-level paper's Tables 10 and 11."""
    maps = {"ResNet18": [2, 2, 2, 2], "ResNet34": [3, 4, 6, 3]}
    for model, stages in maps.items():
        shapes, before = [], (64, 16, 16)
        for stage, blocks in enumerate(stages):
            after = (64 * 2**stage, 16 // 2**stage, 16 // 2**stage)
            for _ in range(blocks):
                shapes.append((before, after))
                before = after
        wanted = [
            row for row in reference_rows if row["model"] == model and row["block"] != "total"
        ]
        assert len(wanted) == len(shapes)
        for row, (inputs, outputs) in zip(wanted, shapes, strict=True):
            elements, eigenvalues_in = counts(inputs, outputs)
            assert elements == int(row["jacobian_elements"])
            assert eigenvalues_in == int(row["jacobian_eigenvalues"])


@pytest.fixture
def reference_rows():
    """The published counts, written out: they are facts."""
    eighteen = [(28, 24)] * 2 + [(27, 23), (26, 23), (25, 22), (24, 22), (23, 21), (22, 21)]
    thirty_four = (
        [(28, 24)] * 3 + [(27, 23)] + [(26, 23)] * 3 + [(25, 22)] + [(24, 22)] * 5
        + [(23, 21)] + [(22, 21)] * 2
    )  # fmt: skip
    return [
        {"model": model, "block": i, "jacobian_elements": 2**e, "jacobian_eigenvalues": 2**v}
        for model, rows in (("ResNet18", eighteen), ("ResNet34", thirty_four))
        for i, (e, v) in enumerate(rows, start=1)
    ]


def test_a_change_of_shape_has_singular_values_only():
    matrix = np.random.default_rng(0).standard_normal((90, 70))
    for method in ("auto", "dense", "reduced"):
        with pytest.raises(ShapeChangesError, match=r"no eigenvalues\. Use `method='krylov'`"):
            spectrum_of(linear(matrix), point(70), method=method)
    found = spectrum_of(linear(matrix), point(70), method="krylov")
    np.testing.assert_allclose(
        found.singular, np.linalg.svd(matrix, compute_uv=False)[:6], rtol=1e-8
    )
    assert len(found.values) == 0


def test_a_matrix_above_the_cap_is_refused_with_its_size():
    function = linear(with_eigenvalues(np.linspace(1, 2, 100)))
    for method in DIRECT:
        with pytest.raises(StepError, match=r"100 rows and would take .* above the cap"):
            spectrum_of(function, point(100), method=method, cap=1000)
    assert spectrum_of(function, point(100), method="auto", cap=1000).plan.method == "krylov"


def test_what_is_not_finite_is_named():
    weight = torch.full((3, 3), math.nan, dtype=torch.float64)
    with pytest.raises(NonFiniteError, match="NaN or infinite"):
        spectrum_of(lambda x: x @ weight, point(3), method="dense")


def test_an_unknown_method_is_refused():
    with pytest.raises(StepError, match=r"`method` is 'exact'\. Give one of auto, reduced, dense"):
        spectrum_of(linear(np.eye(2)), point(2), method="exact")


def test_the_plan_comes_first_and_progress_goes_to_one():
    told = []
    found = spectrum_of(
        made("basic"), torch.randn(1, 4, 6, 6, dtype=torch.float64), method="reduced",
        on_plan=told.append, progress=told.append,
    )  # fmt: skip
    assert told[0] == found.plan
    assert told[0].seconds > 0
    assert told[-1] == 1.0
