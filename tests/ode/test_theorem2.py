"""Theorem 2: true where its proof holds, and false in the two ways that it leaves open."""

import numpy as np
import pytest
from scipy.linalg import expm

from stiffnet.errors import OdeError
from stiffnet.ode import theorem2
from stiffnet.ode.linear import normal_matrix


def test_the_ratio_tends_to_the_square_root_of_c():
    found = theorem2.run()
    assert found.limit == pytest.approx(0.6)
    assert found.instant == pytest.approx(found.predicted, rel=2e-6)
    assert found.instant[-1] == pytest.approx(0.6, rel=1e-5)


@pytest.mark.parametrize(("forcing", "order"), [((0, 0, 0), 2), ((0, -1, 0.5), 2), ((2, 0, 0), 1)])
def test_q_goes_to_zero_as_one_over_lambda_or_its_square(forcing, order):
    """The cross term 2 a₁ c₁ λ₁ is what makes it slow."""
    found = theorem2.run(forcing=forcing, fastest=[-1e3, -1e4])
    q = found.predicted**2 - found.limit**2
    assert np.log10(q[0] / q[1]) == pytest.approx(order, abs=0.01)


def test_the_ratio_of_a_scalar_decay_is_one():
    found = theorem2.run([3.0], [], forcing=[0.0])
    assert found.limit == 1
    assert found.predicted == pytest.approx(1, rel=1e-15)
    assert found.settled[:7] == pytest.approx(1, rel=1e-12)
    assert np.isnan(found.settled[-8:]).all()  # e^-1000 is zero, and zero has no SAI


def test_with_a_fixed_interval_the_ratio_tends_to_zero():
    """The fast part can lose no more than itself: SAI stays below about 1 / interval."""
    found = theorem2.run(forcing=(0, 0, 0))
    assert (found.observed * found.stiffness_index <= 1 / found.interval).all()
    assert found.observed[-1] < 1e-3 * found.limit


def test_later_on_the_solution_the_ratio_tends_to_zero():
    found = theorem2.run()
    falls = np.log10(found.settled[:-1] / found.settled[1:])
    assert falls[-8:] == pytest.approx(0.25, abs=1e-3)  # as 1 / |λ₁|, whose steps are 10^(1/4)


def test_ratios_agree_with_a_matrix_exponential():
    c, a, lambdas = np.array([0.3, -0.5]), np.array([1.0, 2.0]), [-40.0, -3.0]
    found = theorem2.run(c, lambdas[1:], forcing=a, fastest=lambdas[:1], interval=0.05, later=0.2)
    matrix, axes = normal_matrix(lambdas)
    bordered = np.zeros((3, 3))
    bordered[:2, :2], bordered[:2, 2] = matrix, axes @ a

    def state(time):
        return (expm(time * bordered) @ np.append(axes @ c, 1.0))[:2]

    coarse = np.linalg.norm(state(0.05) - state(0)) / 0.05 / np.linalg.norm(c) / 40
    late = np.linalg.norm(matrix @ state(0.2) + axes @ a) / np.linalg.norm(state(0.2)) / 40
    assert found.observed[0] == pytest.approx(coarse, rel=1e-12)
    assert found.settled[0] == pytest.approx(late, rel=1e-11)


def test_the_eigenvectors_do_not_matter():
    one, other = (theorem2.run(seed=seed).to_frame() for seed in (0, 1))
    assert one.to_numpy() == pytest.approx(other.to_numpy(), rel=1e-8)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: theorem2.run([1.0], [-1.0]), "2 eigenvalues, 1 coefficients and 3 numbers"),
        (lambda: theorem2.run(rest=[-1.0, 2.0]), "is about negative eigenvalues, and one is not"),
        (lambda: theorem2.run(fastest=[-5.0]), "λ₁ = -5 is not the fastest eigenvalue beside -10"),
        (lambda: theorem2.run([0.0] * 3), "A state of zeros has no SAI"),
        (lambda: theorem2.run(interval=0.0), "has to be a positive number, and 0.0 is not"),
        (lambda: theorem2.run([1, np.nan, 1]), "Theorem 2 needs finite numbers"),
    ],
)
def test_what_is_not_the_theorems_case_is_refused(wrong, message):
    with pytest.raises(OdeError, match=message):
        wrong()
