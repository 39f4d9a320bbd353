"""Every problem of the table: its formulas agree with each other and with published solutions."""

import numpy as np
import pytest

from stiffnet.errors import OdeError, UnknownNameError
from stiffnet.ode import chemistry, solve
from stiffnet.ode.linear import linear
from stiffnet.ode.problem import Problem
from stiffnet.ode.problems import PROBLEMS, problem
from stiffnet.ode.threebody import threebody
from stiffnet.ode.vanderpol import vanderpol
from tolerances import RTOL

ALL = [entry.value for entry in PROBLEMS]
EXACT = [each for each in ALL if each.exact is not None]
EXACT += [linear([-3 + 40j, -1.0], until=2.0), threebody(0.0), threebody(0.9)]
# Four-point differences over 1e-4 of the fastest time, where their own error of fourth order is
# 1e-16: what they lose is a rounding over the gap, or ten where a matrix is exponentiated.
DIFFERENCE = 1e-9
# The errors of single steps add up, and Lagrange's triangle is unstable: it multiplies them.
ACCUMULATED = 100


def names(each: Problem) -> str:
    return each.name


def states(each: Problem) -> np.ndarray:
    """A few states near the initial one, with no component at zero."""
    random = np.random.default_rng(0)
    return each.start + random.uniform(0.1, 0.2, (5, each.start.size))


@pytest.mark.parametrize("each", EXACT, ids=names)
def test_an_exact_solution_satisfies_its_equation(each):
    assert each.exact is not None
    first, last = each.interval
    times = np.linspace(first, last, 9)[1:-1]
    exact = each.exact(times)
    fastest = np.abs(np.linalg.eigvals(each.jacobian(times, exact))).max()
    gap = 1e-4 / fastest
    near, far = ((each.exact(times + k * gap) - each.exact(times - k * gap)) for k in (1, 2))
    slope = (8 * near - far) / (12 * gap)
    scale = fastest * np.abs(exact).max()
    assert np.abs(slope - each.rate(times, exact)).max() <= DIFFERENCE * scale
    assert each.exact(np.array([first]))[0] == pytest.approx(each.start, abs=1e-15, rel=1e-14)


def test_the_paper_prints_the_coefficients_of_equation_8_rounded():
    exact = problem("eq8").exact
    assert exact is not None
    t = np.linspace(0, 0.1, 50)
    printed = 3 - 0.998 * np.exp(-1000 * t) - 2.002 * np.exp(-t)
    assert np.abs(exact(t)[:, 0] - printed).max() < 5e-6


@pytest.mark.parametrize("each", ALL, ids=names)
def test_a_jacobian_is_the_derivative_of_its_rate(each):
    """A complex step has no rounding of its own."""
    for state in states(each):
        columns = [
            each.rate(0.3, state + 1e-30j * unit).imag / 1e-30 for unit in np.eye(state.size)
        ]
        expected = np.stack(columns, axis=1)
        tolerance = RTOL["float64"] * np.abs(expected).max()
        assert each.jacobian(0.3, state) == pytest.approx(expected, rel=0, abs=tolerance)


@pytest.mark.parametrize("each", ALL, ids=names)
def test_many_states_at_once_are_states_one_by_one(each):
    many, times = states(each), np.linspace(0, 0.5, 5)
    for of in (each.rate, each.jacobian):
        alone = np.stack([of(t, state) for t, state in zip(times, many, strict=True)])
        scale = np.abs(alone).max()
        assert of(times, many) == pytest.approx(alone, rel=0, abs=1e-15 * scale)


@pytest.mark.parametrize("solver", ["radau", "lsoda"])
@pytest.mark.parametrize("each", ALL, ids=names)
def test_stiff_solvers_reach_the_reference_end_state(each, solver):
    """Published to sixteen digits for Van der Pol, Robertson and POLLU, computed by others."""
    found = solve.run(each, solver, rtol=1e-7)
    assert found.times[-1] == each.interval[1]
    assert found.end_error is not None
    assert found.end_error <= ACCUMULATED * found.rtol


ATOMS = {
    "nitrogen": {"NO2": 1, "NO": 1, "PAN": 1, "HNO3": 1, "NO3": 1, "N2O5": 2},
    "carbon": {
        "HCHO": 1, "CO": 1, "ALD": 2, "MEO2": 1, "C2O3": 2, "CO2": 1, "PAN": 2, "CH3O": 1,
    },
    "sulphur": {"SO2": 1, "SO4": 1},
}  # fmt: skip


@pytest.mark.parametrize("atoms", ATOMS.values(), ids=ATOMS)
def test_no_reaction_of_pollu_makes_or_loses_atoms(atoms):
    weights = np.array([atoms.get(name, 0) for name in chemistry.SPECIES])
    assert (chemistry.POLLU.changes @ weights == 0).all()


def test_robertson_keeps_its_total():
    assert (chemistry.ROBERTSON.changes.sum(axis=1) == 0).all()


def test_another_start_or_end_has_another_solution():
    each = problem("eq8")
    assert each.starting([2.0]).expected_end() is None
    assert problem("pollu").until(30.0).expected_end() is None
    assert each.until(0.05).expected_end() == each.exact(np.array([0.05]))[0]
    assert solve.run(each.starting([2.0])).end_error is None


def test_the_triangle_is_home_after_one_turn():
    each = threebody(0.8)
    end = each.expected_end()
    assert end == pytest.approx(each.start, abs=1e-13)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: problem("vanderpole"), "no problem called 'vanderpole'. Did you mean 'vanderpol'"),
        (lambda: problem("eq8").starting([np.nan]), "Component 0 of the initial state of 'eq8' is"),
        (lambda: problem("eq8").starting([1, 2]), "has 1 components, and the one given has the"),
        (lambda: problem("eq8").until(0.0), "cannot be solved from t = 0 to t = 0"),
        (lambda: problem("eq8").until(np.inf), "cannot be solved from t = 0 to t = inf"),
        (lambda: linear([]), "make no linear system. Give one or more finite numbers"),
        (lambda: linear([-1.0, np.nan]), "make no linear system"),
        (lambda: linear([-1.0], start=[1.0, 2.0]), "The initial state of 'linear' has"),
        (lambda: vanderpol(0.0), "Van der Pol's epsilon is 0.0. Give a positive number"),
        (lambda: threebody(1.0), "An ellipse has no eccentricity 1.0"),
    ],
)
def test_a_problem_that_is_none_is_refused_in_a_sentence(wrong, message):
    with pytest.raises((OdeError, UnknownNameError), match=message):
        wrong()
