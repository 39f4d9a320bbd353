"""SI and SAI against closed forms."""

import numpy as np
import pytest

from stiffnet.errors import NonFiniteError, OdeError
from stiffnet.ode.indices import stiffness_aware_index, stiffness_index
from stiffnet.ode.linear import linear, normal_matrix
from stiffnet.ode.problem import Floats
from tolerances import RTOL

SPECTRA = [
    ([-5.0], 5.0),
    ([-1000.0, -10.0, -1.0], 1000.0),
    ([-1.0, 30.0], 30.0),  # growth counts like decay
    ([-2 + 500j, -3.0], 3.0),  # and turning does not count
    ([7j], 0.0),
]


@pytest.mark.parametrize(("eigenvalues", "expected"), SPECTRA, ids=str)
@pytest.mark.parametrize("seed", [0, 1])
def test_si_of_a_linear_system_is_its_largest_real_part(eigenvalues, expected, seed):
    each = linear(eigenvalues, seed=seed)
    found = stiffness_index(each.jacobian(0.0, each.start))
    assert found == pytest.approx(expected, rel=RTOL["float64"], abs=1e-12)


def test_si_does_not_see_the_axes_of_a_matrix_that_is_not_normal():
    random = np.random.default_rng(0)
    change = random.standard_normal((3, 3))
    matrix = change @ np.diag([-50.0, -2.0, 1.0]) @ np.linalg.inv(change)
    assert stiffness_index(np.stack([matrix, 2 * matrix])) == pytest.approx([50, 100], rel=1e-10)


@pytest.mark.parametrize("rate", [-1000.0, -1.0, 0.5])
@pytest.mark.parametrize("gap", [1e-6, 1e-3, 0.1])
def test_sai_of_a_decay_is_its_mean_slope(rate, gap):
    """|e^(λ h) - 1| / h: |λ| for short intervals, and at most 1 / h for a decay, whatever λ."""
    times = gap * np.arange(6)
    found = stiffness_aware_index(times, 7 * np.exp(rate * times)[:, None])
    rounding = 1e-16 / abs(np.expm1(rate * gap))
    assert found == pytest.approx(abs(np.expm1(rate * gap)) / gap, rel=1e-12 + 10 * rounding)
    assert (found <= (1 + 1e-14) / gap).all() or rate > 0


def observations() -> tuple[Floats, Floats]:
    random = np.random.default_rng(0)
    return np.cumsum(random.uniform(0.1, 1, 8)), random.standard_normal((8, 3))


def test_sai_is_written_as_in_equation_3():
    times, states = observations()
    expected = [
        np.sqrt(sum(((after - before) / (t1 - t0)) ** 2)) / np.sqrt(sum(before**2))
        for t0, t1, before, after in zip(times, times[1:], states, states[1:], strict=False)
    ]
    assert stiffness_aware_index(times, states) == pytest.approx(expected, rel=RTOL["float64"])


def test_sai_does_not_see_scale_or_axes_and_counts_in_units_of_time():
    times, states = observations()
    plain = stiffness_aware_index(times, states)
    axes = normal_matrix([1.0, 1.0, 1.0], seed=3)[1]
    assert stiffness_aware_index(times, 9 * states @ axes) == pytest.approx(plain, rel=1e-12)
    for scale in (1e-200, 1e200):  # whose squares are zero and infinite
        assert stiffness_aware_index(times, scale * states) == pytest.approx(plain, rel=1e-12)
    assert stiffness_aware_index(4 * times, states) == pytest.approx(plain / 4, rel=1e-15)


def test_a_state_of_zeros_has_no_sai():
    found = stiffness_aware_index(np.arange(3.0), np.array([[0.0], [2.0], [3.0]]))
    assert found == pytest.approx([np.nan, 0.5], nan_ok=True)


@pytest.mark.parametrize(
    ("times", "states", "message"),
    [
        ([0.0], [[1.0]], "SAI needs two or more observations"),
        ([0.0, 1.0, 1.0], [[1.0]] * 3, "Observation 2, at t = 1, is not later than the one before"),
        ([0.0, 1.0], [[1.0]], "there are 2 times and 1 states"),
        ([0.0, 1.0], [[1.0], [np.nan]], "Observation 1, at t = 1, is not finite"),
    ],
)
def test_observations_that_give_no_index_are_refused(times, states, message):
    with pytest.raises((OdeError, NonFiniteError), match=message):
        stiffness_aware_index(np.array(times), np.array(states))


def test_a_jacobian_with_nan_is_refused():
    with pytest.raises(NonFiniteError, match="so it has no eigenvalues"):
        stiffness_index(np.array([[np.nan]]))
