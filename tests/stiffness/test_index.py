"""The index and its norms: definition, layouts, precision, range, and what has no index."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.overrides import TorchFunctionMode
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from reference import stiffness as reference
from stiffnet.errors import NonFiniteError, StepError
from stiffnet.stiffness.index import index_from_norms, indices_from_norms
from stiffnet.trajectory.norms import sample_norms
from tolerances import RTOL

ALL = settings(derandomize=True, deadline=None)


def stiffness_index(state, rate):
    return index_from_norms(sample_norms(state), sample_norms(rate), what="this step")


LAYOUTS = {
    "contiguous": lambda x: x,
    "channels_last": lambda x: x.to(memory_format=torch.channels_last),
    "sliced": lambda x: torch.stack([x, -x], dim=-1)[..., 0],
    "every other": lambda x: x.repeat_interleave(2, dim=2)[:, :, ::2],
    "batch in the middle": lambda x: x.movedim(0, 2).contiguous().movedim(2, 0),
    "expanded": lambda x: x[:, :1].expand_as(x),
}


def random(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def wide_norms(x):
    return x.double().flatten(1).square().sum(dim=1).sqrt()


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str
)
@pytest.mark.parametrize(
    "shape", [(3,), (4, 7), (2, 3, 5, 5), (2, 3, 40, 41), (0, 3), (3, 0)], ids=str
)
def test_agrees_with_the_definition(shape, dtype):
    x = random(*shape, dtype=dtype)
    norms = sample_norms(x)
    expected = torch.tensor(reference.norms(x.double().numpy()), dtype=torch.float64)
    rtol = RTOL["float64" if dtype == torch.float64 else "norm"]
    assert norms.dtype == torch.float64
    assert_close(norms, expected, rtol=rtol, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("value", [0.1, 1 / 3, 0.7, 5.0])
def test_does_not_drift_over_many_equal_entries(value, dtype):
    x = torch.full((2, 300_001), value, dtype=dtype)
    assert_close(sample_norms(x), wide_norms(x), rtol=RTOL["norm"], atol=0.0)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_does_not_depend_on_the_layout_in_memory(layout, dtype):
    x = layout(random(3, 16, 24, 25, dtype=dtype))
    assert_close(sample_norms(x), wide_norms(x), rtol=RTOL["norm"], atol=0.0)


class _LargestCopy(TorchDispatchMode):
    """Remembers the largest tensor that was made and does not share the given one's memory."""

    def __init__(self, x):
        super().__init__()
        self.own, self.elements = x.untyped_storage().data_ptr(), 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.untyped_storage().data_ptr() != self.own:
            self.elements = max(self.elements, result.numel())
        return result


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_never_copies_its_input_whole(layout, dtype, value):
    x = layout(torch.full((40, 64, 32, 32), value, dtype=dtype))
    with _LargestCopy(x) as copies:
        sample_norms(x)
    assert copies.elements <= x.numel() // 2


@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    axis=st.integers(0, 3),
    entries=st.integers(1, 3),
    seed=st.integers(0, 100),
)
@ALL
def test_finds_samples_along_any_axis_with_any_fold(shape, axis, entries, seed):
    axis %= len(shape)
    samples = random(*shape, dtype=torch.float64, seed=seed)  # (n, entries, rest) in the end
    x = samples.movedim(0, axis)
    x = x.repeat_interleave(entries, dim=axis)  # every row of a sample is the same
    expected = wide_norms(samples.reshape(len(samples), -1)) * math.sqrt(entries)
    for where in (axis, axis - x.dim()):
        norms = sample_norms(x, axis=where, entries=entries)
        assert_close(norms, expected, rtol=RTOL["float64"], atol=0.0)


def test_folds_neighbouring_rows():
    x = torch.tensor([[1.0], [2.0], [2.0], [2.0], [3.0], [6.0]])
    assert sample_norms(x, entries=3).tolist() == [3.0, 7.0]


def test_a_sample_does_not_see_its_batch():
    x = random(6, 5, 30, 30)
    assert torch.equal(sample_norms(x), torch.cat([sample_norms(one) for one in x.split(1)]))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (6e4, torch.float16),
        (1e38, torch.bfloat16),
        (1e30, torch.float32),
        (1e-30, torch.float32),
        (1e-41, torch.float32),
        (1e-7, torch.float16),
        (1e200, torch.float64),
        (1e-200, torch.float64),
    ],
)
def test_survives_squares_out_of_range(value, dtype):
    x = torch.full((3, 10_000), value, dtype=dtype)
    x[1] = 1.0
    x[2] = 0.0
    entry = float(x[0, 0])
    expected = torch.tensor([entry * 100, 100.0, 0.0], dtype=torch.float64)
    assert_close(sample_norms(x), expected, rtol=RTOL["norm"], atol=0.0)


def test_keeps_nan_and_inf():
    x = torch.tensor([[math.nan, 1.0], [math.inf, 1.0], [-math.inf, math.nan], [3.0, 4.0]])
    norms = sample_norms(x)
    assert norms.isnan().tolist() == [True, False, True, False]
    assert norms.isinf().tolist() == [False, True, False, False]


@given(scale=st.integers(-40, 40), rate=st.floats(0.01, 100))
@ALL
def test_an_euler_step_of_a_linear_equation_has_the_index_of_its_rate(scale, rate):
    """f = λx has index |λ| wherever it is, and the scale of x cancels."""
    x = random(4, 6, dtype=torch.float64) * 2.0**scale
    index = stiffness_index(x, -rate * x)
    assert_close(index, torch.full_like(index, rate), rtol=RTOL["float64"], atol=0.0)


def test_a_zero_rate_is_an_index_of_zero():
    assert stiffness_index(torch.ones(2, 3), torch.zeros(2, 3)).tolist() == [0.0, 0.0]


def test_carries_no_gradient():
    assert not sample_norms(torch.ones(2, 3, requires_grad=True)).requires_grad


@pytest.mark.parametrize(
    ("state", "rate", "message"),
    [
        ([1.0, math.nan], [1.0, 1.0], "state at layer1.0 is NaN for sample 1; .*check"),
        ([math.inf, 1.0], [1.0, 1.0], "state at layer1.0 is infinite for sample 0; .*check"),
        ([1.0, 1.0], [math.nan, math.nan], "rate at layer1.0 is NaN for samples 0 and 1; .*check"),
        ([1.0, 1.0], [1.0, math.inf], "rate at layer1.0 is infinite for sample 1; .*float32"),
        ([1.0, 0.0], [1.0, 1.0], "state at layer1.0 has norm zero for sample 1, .*leave out"),
        ([0.0, 1.0], [0.0, 1.0], "state at layer1.0 has norm zero for sample 0, .*leave out"),
        ([5e-324, 1.0], [1.0, 1.0], "1e308 times its state for sample 0; .*leave out"),
        ([0.0] * 8, [1.0] * 8, "samples 0, 1, 2, 3, 4 and 3 more"),
    ],
)
def test_names_the_sample_and_the_step_that_have_no_index(state, rate, message):
    state, rate = (torch.tensor(x, dtype=torch.float64) for x in (state, rate))
    with pytest.raises(NonFiniteError, match=message):
        index_from_norms(state, rate, what="layer1.0")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sample_norms(torch.ones(2, 2, dtype=torch.int64)), "floating-point"),
        (lambda: sample_norms(torch.ones(2, 2), axis=2), "axis 2"),
        (lambda: sample_norms(torch.tensor(1.0)), "axis 0"),
        (lambda: sample_norms(torch.ones(5, 2), entries=2), "length 5 .* 2 rows"),
        (lambda: sample_norms(torch.ones(5, 2), entries=0), "length 5 .* 0 rows"),
        (lambda: stiffness_index(torch.ones(2, 2), torch.ones(3, 2)), r"\(2,\) .* \(3,\)"),
    ],
)
def test_refuses_what_it_cannot_measure(call, message):
    with pytest.raises(StepError, match=message):
        call()


def test_reads_numpy_values_without_loss():
    x = np.array([[3.0, 4.0]])
    assert sample_norms(torch.from_numpy(x)).tolist() == [5.0]


def norms(*shape, seed):
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


STEPS = ["a", "b", "c"]


def test_a_table_has_the_indices_of_its_steps():
    states, rates = norms(5, 3, seed=0), norms(2, 5, 3, seed=1)
    for table, found in zip(rates, indices_from_norms(states, rates, steps=STEPS), strict=True):
        columns = zip(states.T, table.T, strict=True)
        expected = [index_from_norms(state, rate, what="") for state, rate in columns]
        assert torch.equal(found, torch.stack(expected, dim=1))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 0.0])
@pytest.mark.parametrize("what", ["state", "rate", "increment"])
def test_a_table_names_the_first_step_as_that_step_by_itself_would_be_named(what, bad):
    states, rates = norms(5, 3, seed=0), norms(2, 5, 3, seed=1)
    wrong = {"state": states, "rate": rates[0], "increment": rates[1]}[what]
    wrong[[1, 4], 1] = wrong[2, 2] = bad
    if what != "state" and bad == 0:
        assert torch.equal(indices_from_norms(states, rates, steps=STEPS) == 0, rates == 0)
        return
    with pytest.raises(NonFiniteError) as alone:
        index_from_norms(
            states[:, 1], rates[int(what == "increment"), :, 1], what="step 'b'", first=10
        )
    with pytest.raises(NonFiniteError) as together:
        indices_from_norms(states, rates, steps=STEPS, first=10)
    assert str(together.value) == str(alone.value)
    assert "step 'b'" in str(together.value)
    assert "samples 11 and 14" in str(together.value)


class Waits(TorchFunctionMode):
    """Counts how often a program waits for the device."""

    count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += func.__name__ in ("__bool__", "item", "__float__", "tolist", "cpu")
        return func(*args, **(kwargs or {}))


def test_a_table_waits_for_the_device_once():
    with Waits() as waits:
        indices_from_norms(norms(5, 3, seed=0), norms(2, 5, 3, seed=1), steps=STEPS)
    assert waits.count == 1
