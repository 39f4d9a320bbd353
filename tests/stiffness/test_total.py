"""TNS, δ and the proportion: closed form against integrals, counts against rational arithmetic."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from reference import stiffness as reference
from stiffnet.errors import NonFiniteError, StepError
from stiffnet.stiffness.total import delta, proportion, stage_tns, tns
from tolerances import RTOL

ALL = settings(derandomize=True, deadline=None)
SLOWER = settings(derandomize=True, deadline=None, max_examples=40)


@st.composite
def cases(draw, values=None, *, most_steps=7):
    """(N, L) indices and a stage per step; ids need be neither sorted nor contiguous."""
    steps = draw(st.integers(1, most_steps))
    stages = draw(st.lists(st.sampled_from([3, -1, 10]), min_size=steps, max_size=steps))
    values = st.floats(1e-3, 1e3) | st.just(0.0) if values is None else values
    return draw(arrays(np.float64, (draw(st.integers(1, 4)), steps), elements=values)), stages


def whole_cases():
    """Small whole numbers and quarters: sums, products and ties are all exact."""
    return cases(st.integers(0, 12).map(lambda v: v / 4))


def close(actual, expected, rtol, scale=None):
    atol = 0.0 if scale is None else rtol * float(np.max(scale, initial=0.0))
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    ("row", "stages", "area"),
    [
        ([1.0, 1.0, 4.0], [0, 0, 0], 4.0),  # one rectangle: 4 (4/2 - 1)
        ([1.0, 1.0, 4.0, 2.0, 6.0], [0, 0, 0, 1, 1], 5.0),  # 1 x 4 and 0.5 x 6: 4 + 0.5 * 2
        ([1.0, 3.0, 2.0, 6.0], [0, 0, 1, 1], 3.0),  # equal widths: the higher covers
        ([1.0, 1.0, 4.0, 3.0, 5.0], [0, 0, 0, 1, 1], 4.25),  # 1 x 4 and 0.25 x 5
        ([0.0, 0.0, 1.0, 3.0], [0, 0, 1, 1], 1.5),  # a stage of zeros adds nothing
        ([0.3, 0.3, 0.3], [0, 0, 0], 0.0),  # no spread, no stiffness
        ([0.7], [4], 0.0),
        ([0.0], [4], 0.0),
    ],
)
def test_has_the_area_one_finds_by_hand(row, stages, area):
    assert tns(np.array([row]), stages).tolist() == [area]


@given(cases())
@ALL
def test_equals_the_integral_cell_by_cell(case):
    nsi, stages = case
    close(tns(nsi, stages), reference.tns(nsi, stages), RTOL["float64"], nsi.max() * len(stages))


@pytest.mark.parametrize("stages", [[0] * 9, [0, 0, 0, 1, 1, 1, 2, 2, 2]], ids=["one", "three"])
def test_equals_the_integral_over_a_fine_grid(stages):
    nsi = np.random.default_rng(0).lognormal(size=(5, 9))
    cells = 400
    m1 = (np.arange(cells) + 0.5) / cells * len(stages)  # m/μ - 1 < L
    m2 = (np.arange(cells) + 0.5) / cells * nsi.max()
    cell = m1[0] * 2 * m2[0] * 2
    total = delta(nsi, stages, m1, m2).value.sum() * cell
    close(total, tns(nsi, stages).mean(), RTOL["grid"])


@given(cases())
@ALL
def test_delta_integrates_to_it_exactly(case):
    """δ is constant between breakpoints, so a sum over cells is its integral."""
    nsi, stages = case
    mean = {s: nsi[:, [t == s for t in stages]].mean(axis=1) for s in stages}
    columns = np.stack([mean[s] for s in stages], axis=1)
    excess = np.divide(nsi, columns, out=np.ones_like(nsi), where=columns > 0) - 1
    m1, m2 = np.unique([0.0, *excess[excess > 0]]), np.unique([0.0, *nsi.ravel()])
    assume(len(m1) > 1)
    middles = [(m[1:] + m[:-1]) / 2 for m in (m1, m2)]
    volume = (delta(nsi, stages, *middles).value * np.outer(np.diff(m1), np.diff(m2))).sum()
    close(volume, tns(nsi, stages).mean(), RTOL["float64"], nsi.max() * len(stages))


@given(cases(), st.integers(-30, 30), st.floats(0.1, 10))
@ALL
def test_scales_with_the_index(case, power, factor):
    nsi, stages = case
    once = tns(nsi, stages)
    assert np.array_equal(tns(nsi * 2.0**power, stages), once * 2.0**power)
    size = nsi.max() * len(stages) * factor
    close(tns(nsi * factor, stages), once * factor, RTOL["float64"], size)


@given(cases(), st.randoms(use_true_random=False))
@ALL
def test_does_not_depend_on_the_order_of_samples_steps_or_stage_names(case, random):
    nsi, stages = case
    rows = random.sample(range(len(nsi)), len(nsi))
    assert np.array_equal(tns(nsi[rows], stages), tns(nsi, stages)[rows])
    cols = random.sample(range(len(stages)), len(stages))
    renamed = [{3: 0, -1: 1, 10: -7}[stages[c]] for c in cols]
    size = nsi.max() * len(stages)
    close(tns(nsi[:, cols], renamed), tns(nsi, stages), RTOL["float64"], size)


@given(cases())
@ALL
def test_lies_between_the_largest_stage_and_their_sum(case):
    nsi, stages = case
    own, union = stage_tns(nsi, stages), tns(nsi, stages)
    slack = RTOL["float64"] * nsi.max() * len(stages)
    close(own, reference.stage_tns(nsi, stages), RTOL["float64"], nsi.max() * len(stages))
    assert (union >= own.max(axis=1) - slack).all()
    assert (union <= own.sum(axis=1) + slack).all()


@given(
    whole_cases(),
    st.lists(st.integers(0, 12), max_size=5),
    st.lists(st.integers(0, 12), max_size=5),
)
@SLOWER
def test_counts_equal_the_definition_in_rational_arithmetic(case, m1, m2):
    """Quarters everywhere, so that ties are frequent and exact; grids unsorted, with repeats."""
    nsi, stages = case
    m1, m2 = np.array(m1) / 4, np.array(m2) / 4
    for function, samples in (
        (delta, reference.delta_samples),
        (proportion, reference.proportion_samples),
    ):
        estimate = function(nsi, stages, m1, m2)
        expected = np.array(
            [[samples(nsi, stages, a, b) for b in m2] for a in m1], dtype=float
        ).reshape(len(m1), len(m2), len(nsi))
        counts = np.rint(expected * len(stages)).sum(axis=2)  # whole numbers: compare exactly
        assert np.array_equal(np.rint(estimate.value * len(stages) * len(nsi)), counts)
        close(estimate.value, expected.mean(axis=2), RTOL["float64"])
        if len(nsi) > 1:
            error = reference.standard_error(np.moveaxis(expected, 2, 0))
            close(estimate.standard_error, error, RTOL["float64"], 1.0)


@given(cases(), st.floats(0, 5), st.floats(0, 1e3))
@SLOWER
def test_counts_equal_the_definition_for_any_numbers(case, m1, m2):
    """Wherever the last bit of a float64 does not decide, that is."""
    nsi, stages = case
    for stage in set(stages):
        part = nsi[:, [s == stage for s in stages]]
        edge = part.mean(axis=1, keepdims=True) * (1 + m1)
        assume(not (np.isclose(part, edge, rtol=RTOL["float64"], atol=0.0) & (part > 0)).any())
    share = delta(nsi, stages, m1, m2)
    assert share.value.shape == ()
    assert share.value == reference.delta_samples(nsi, stages, m1, m2).mean()
    steps = proportion(nsi, stages, m1, m2).value
    close(steps, reference.proportion_samples(nsi, stages, m1, m2).mean(), RTOL["float64"])


@pytest.mark.parametrize("steps", [3, 7, 18, 54])
def test_ties_with_a_mean_that_has_no_binary_fraction_are_stiff(steps):
    """ζ·n ≥ Σ(1 + M₁) in whole numbers; dividing by a rounded mean misses, e.g., 9/(18/7) = 3.5."""
    rows = np.zeros((40 * 40, steps), dtype=int)
    rows[:, :2] = list(itertools.product(range(1, 41), repeat=2))
    quarters = np.arange(4 * steps)
    totals = rows.sum(axis=1)[:, None, None]
    stiff = rows[:, None] * steps * 4 >= totals * (4 + quarters)[:, None]
    share = delta(rows, [0] * steps, quarters / 4, 0.0).value
    assert np.array_equal(share, stiff.any(axis=2).mean(axis=0))
    steps_share = proportion(rows, [0] * steps, quarters / 4, 0.0).value
    assert np.array_equal(steps_share, stiff.sum(axis=(0, 2)) / rows.size)


@pytest.mark.parametrize("value", [0.1, 0.3, 1 / 3, 0.7, 1e-5])
@pytest.mark.parametrize("steps", [3, 7, 10, 54])
def test_equal_values_reach_their_own_mean(value, steps):
    """Σ of equal numbers rounds, and could put the mean above all of them."""
    nsi = np.full((1, steps), value)
    assert delta(nsi, [0] * steps, 0.0, 0.0).value == 1.0
    assert proportion(nsi, [0] * steps, 0.0, value).value == 1.0
    assert tns(nsi, [0] * steps)[0] == pytest.approx(0.0, abs=RTOL["float64"] * value)


def test_the_proportion_at_zero_is_the_share_at_or_above_the_mean():
    nsi = np.array([[1.0, 2.0, 3.0, 2.0], [1.0, 1.0, 1.0, 5.0]])  # means 2 and 2: 3 of 4, 1 of 4
    estimate = proportion(nsi, [0] * 4, 0.0, 0.0)
    assert estimate.value == 0.5
    assert estimate.standard_error == pytest.approx(0.25)  # std of (0.75, 0.25) over √2


def test_the_standard_error_of_delta_is_that_of_ones_and_zeros():
    nsi = np.array([[1.0, 3.0], [1.0, 1.0], [2.0, 2.0]])  # stiff at M₁ = 0.5: 1, 0, 0
    estimate = delta(nsi, [0, 0], 0.5, 0.0)
    assert estimate.value == 1 / 3
    assert estimate.standard_error == pytest.approx(reference.standard_error([1, 0, 0]))


def test_a_stage_of_zeros_is_stiff_only_at_zero():
    nsi = np.zeros((1, 2))
    assert delta(nsi, [0, 0], [0.0, 9.0], [0.0, 1e-300]).value.tolist() == [[1, 0], [1, 0]]
    assert proportion(nsi, [0, 0], [0.0, 9.0], [0.0, 1e-300]).value.tolist() == [[1, 0], [1, 0]]


def test_a_number_drops_its_axis_and_one_sample_has_no_error():
    nsi = np.ones((1, 2))
    for function in (delta, proportion):
        assert function(nsi, [0, 0], 0.0, [0.0, 1.0, 2.0]).value.shape == (3,)
        assert function(nsi, [0, 0], [0.0, 1.0], 0.0).value.shape == (2,)
        assert function(nsi, [0, 0], 0.0, 0.0).standard_error is None


def test_counts_many_samples_in_pieces():
    """More samples than fit into one piece give the mean of the pieces."""
    nsi = np.random.default_rng(0).lognormal(size=(4000, 54))
    stages, m = np.repeat([0, 1, 2], 18), np.linspace(0, 3, 40)
    whole = proportion(nsi, stages, m, m)
    halves = [proportion(part, stages, m, m).value for part in (nsi[:1500], nsi[1500:])]
    close(whole.value, (halves[0] * 1500 + halves[1] * 2500) / 4000, RTOL["float64"])
    ratio = nsi.reshape(-1, 3, 18) / nsi.reshape(-1, 3, 18).mean(axis=2, keepdims=True)
    some = ((ratio.reshape(-1, 54) >= 1 + m[7]) & (nsi >= m[20])).mean(axis=1)
    assert whole.value[7, 20] == pytest.approx(some.mean(), rel=RTOL["float64"])
    error = reference.standard_error(some)
    assert whole.standard_error[7, 20] == pytest.approx(error, rel=RTOL["merge"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_returns_the_kind_it_was_given_in_float64(dtype):
    nsi = torch.tensor([[1.0, 1.0, 4.0], [0.5, 0.5, 0.5]], dtype=dtype)
    for function in (tns, stage_tns):
        result = function(nsi, torch.tensor([5, 5, 5]))
        assert isinstance(result, torch.Tensor)
        assert result.dtype == torch.float64
        again = function(nsi.double().numpy(), np.array([5, 5, 5]))
        assert isinstance(again, np.ndarray)
        assert again.dtype == np.float64
        assert result.tolist() == again.tolist()
    assert tns(nsi[:0], [0, 0, 0]).shape == (0,)
    assert stage_tns(nsi[:0], [0, 1, 0]).shape == (0, 2)


def test_leaves_its_input_alone():
    nsi = np.array([[1.0, 2.0, 3.0]])
    tns(nsi, [0, 0, 1]), delta(nsi, [0, 0, 1], 0.0, 0.0), proportion(nsi, [0, 0, 1], 0.0, 0.0)
    assert nsi.tolist() == [[1.0, 2.0, 3.0]]


@pytest.mark.parametrize("function", [tns, stage_tns, lambda n, s: delta(n, s, 0.0, 0.0)])
@pytest.mark.parametrize(
    ("nsi", "stages", "error", "message"),
    [
        (np.ones(3), [0, 0, 0], StepError, r"shape \(3,\); give \(samples, steps\)"),
        (np.ones((2, 0)), [], StepError, "at least one step"),
        (np.ones((2, 3)), [0, 0], StepError, r"shape \(2,\) .* 3 steps; give one integer"),
        (np.ones((2, 2)), [0.0, 0.5], StepError, "float64 for 2 steps; give one integer"),
        (np.array([[1.0, -1.0]]), [0, 0], StepError, "negative for sample 0 at step 1"),
        (np.array([[1.0], [math.nan]]), [0], NonFiniteError, "sample 1 at step 0, .* leave"),
        (np.array([[1.0, math.inf]]), [0, 0], NonFiniteError, "sample 0 at step 1"),
    ],
)
def test_refuses_indices_that_are_none(function, nsi, stages, error, message):
    with pytest.raises(error, match=message):
        function(nsi, stages)


@pytest.mark.parametrize("function", [delta, proportion])
def test_refuses_bad_thresholds_and_no_samples(function):
    nsi = np.ones((2, 2))
    for m1, m2, name in ((-1.0, 0.0, "m1"), (0.0, [math.nan], "m2"), (0.0, [[1.0]], "m2")):
        with pytest.raises(StepError, match=f"`{name}` must be"):
            function(nsi, [0, 0], m1, m2)
    with pytest.raises(StepError, match="at least one row"):
        function(nsi[:0], [0, 0], 0.0, 0.0)


@pytest.mark.parametrize("samples", [1, 7])
def test_a_proportion_does_not_depend_on_whether_its_error_is_asked_for(samples):
    nsi = np.random.default_rng(3).gamma(2.0, size=(samples, 5))
    grid = [0.7, 0.0, 0.2, 0.7], [1.0, 0.0, 2.5]
    whole, bare = (proportion(nsi, [0, 0, 1, 1, 1], *grid, errors=e) for e in (True, False))
    np.testing.assert_array_equal(bare.value, whole.value)
    assert bare.standard_error is None
    assert (whole.standard_error is None) == (samples == 1)
