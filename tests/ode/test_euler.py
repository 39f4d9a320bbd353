"""Forward Euler: (1 + h λ)^n, and a border at 2 / |λ| that Figure 3 does not cross."""

import numpy as np
import pytest

from stiffnet.errors import NonFiniteError, OdeError, UnknownNameError
from stiffnet.ode import euler
from stiffnet.ode.linear import linear, normal_matrix
from stiffnet.ode.problems import problem
from tolerances import RTOL


@pytest.mark.parametrize("step", [0.0005, 0.0015, 0.0019, 0.0021, 0.01])
def test_every_mode_of_a_linear_system_grows_by_one_plus_h_lambda(step):
    eigenvalues = np.array([-1000.0, -10.0, -1.0])
    each = linear(list(eigenvalues), until=40 * step)
    times, states = euler.euler(each, step)
    modes = states @ normal_matrix(list(eigenvalues))[1]
    n = np.arange(len(times))[:, None]
    expected = (1 + step * eigenvalues) ** n
    scale = np.maximum.accumulate(np.abs(expected).max(axis=1))[:, None]
    assert len(times) == 41
    assert (np.abs(modes - expected) <= RTOL["float64"] * scale).all()


@pytest.mark.parametrize(("share", "grows"), [(0.999, False), (1.001, True)])
@pytest.mark.parametrize("eigenvalues", [[-1000.0], [-1000.0, -1.0], [-3 + 400j], [-2 + 1j]])
def test_forward_euler_grows_exactly_above_its_largest_stable_step(eigenvalues, share, grows):
    limit = euler.largest_stable_step(eigenvalues)
    step = share * limit
    assert (euler.amplification(step, eigenvalues) > 1) is grows
    _, states = euler.euler(linear(eigenvalues, until=20_000 * step), step)
    first, last = np.linalg.norm(states[[10, -1]], axis=1)
    assert bool(last > first) is grows


def test_the_limit_of_equation_8_is_two_thousandths():
    assert euler.run("eq8").limit == pytest.approx(0.002, rel=1e-15)


def test_figure_3_step_of_0_0015_overshoots_at_first_and_decays():
    """|1 - 1.5| = 0.5: the error halves at every step, with alternating sign."""
    found = euler.run("eq8", [0.0015])
    exact = problem("eq8").exact
    assert exact is not None
    assert found.amplification[0] == pytest.approx(0.5, rel=1e-12)
    assert found.states[0][1, 0] == pytest.approx(1.5)  # where the solution is 0.778
    assert exact(found.times[0][1:2])[0, 0] == pytest.approx(0.7783, abs=5e-4)
    signed = (found.states[0] - exact(found.times[0]))[5:12, 0]
    assert signed[1:] / signed[:-1] == pytest.approx(-0.5, abs=0.02)
    assert found.errors[0][-1] < 1e-5


@pytest.mark.parametrize("step", [0.00201, 0.0021, 0.003])
def test_steps_above_the_limit_blow_up_on_equation_8(step):
    errors = euler.run("eq8", [step], until=1.0).errors[0]
    assert errors[-1] / errors[-2] == pytest.approx(1000 * step - 1, rel=1e-3)
    assert errors[-1] > 10 * errors[1]


def test_halving_the_step_halves_the_error():
    decay = linear([-1.0, -2.0])
    errors = euler.run(decay, [1e-3, 5e-4]).to_frame()["end_error"]
    assert errors[0] / errors[1] == pytest.approx(2, rel=1e-2)


def test_whole_steps_are_not_lost_to_rounding():
    for count in range(1, 300):
        times, _ = euler.euler(linear([-1.0], until=0.1), 0.1 / count)
        assert len(times) == count + 1


@pytest.mark.parametrize("step", [0.0, -0.1, np.nan, np.inf])
def test_a_step_that_is_not_positive_is_refused(step):
    with pytest.raises(OdeError, match=f"has to be a positive number, and {step} is not"):
        euler.run("eq8", [step])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: euler.run("eq9"), "no problem called 'eq9'. Did you mean 'eq8'"),
        (lambda: euler.run("robertson"), "'robertson' has no exact solution to compare with"),
        (lambda: euler.run("threebody"), "so no step makes forward Euler decay"),
        (lambda: euler.run("eq8", [1.0]), "No step of 1 fits into the interval from 0 to 0.1"),
        (lambda: euler.run("eq8", [0.01], until=20), "left the range of float64 at t = 3"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_sentence(wrong, message):
    with pytest.raises((OdeError, NonFiniteError, UnknownNameError), match=message):
        wrong()
