"""Fehlberg's method: its order conditions, the orders seen, its stability and its step rule."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from stiffnet.errors import NonFiniteError, OdeError
from stiffnet.ode import fehlberg, solve
from stiffnet.ode.linear import linear
from stiffnet.ode.problem import Problem
from stiffnet.ode.problems import problem

MATRIX = np.array([np.pad(row, (0, 6 - len(row))) for row in fehlberg.STAGES])
Tree = tuple["Tree", ...]


def trees(size: int) -> set[Tree]:
    """Every rooted tree of that many nodes, as the sorted tuple of its branches."""
    if size == 1:
        return {()}
    return {tuple(sorted(branches)) for branches in forests(size - 1)}


def forests(size: int) -> Iterator[tuple[Tree, ...]]:
    if size == 0:
        yield ()
    for first in range(1, size + 1):
        for tree, others in itertools.product(trees(first), forests(size - first)):
            yield (tree, *others)


def nodes(tree: Tree) -> int:
    return 1 + sum(nodes(branch) for branch in tree)


def density(tree: Tree) -> int:
    return nodes(tree) * int(np.prod([density(branch) for branch in tree]))


def inner(tree: Tree) -> np.ndarray:
    """The elementary weights of a tree's root at each stage."""
    return np.prod([np.ones(6), *(MATRIX @ inner(branch) for branch in tree)], axis=0)


def misses(weights: np.ndarray, order: int) -> float:
    """How far the conditions of exactly that order are from holding."""
    return max(abs(weights @ inner(tree) - 1 / density(tree)) for tree in trees(order))


def test_there_are_as_many_trees_as_there_should_be():
    assert [len(trees(size)) for size in range(1, 7)] == [1, 1, 2, 4, 9, 20]


@pytest.mark.parametrize(("weights", "order"), [(fehlberg.FOURTH, 4), (fehlberg.FIFTH, 5)])
def test_the_coefficients_satisfy_the_order_conditions_and_no_more(weights, order):
    for each in range(1, order + 1):
        assert misses(weights, each) < 1e-14
    assert misses(weights, order + 1) > 1e-4
    assert MATRIX.sum(axis=1) == pytest.approx(fehlberg.NODES, abs=1e-15)


def smooth() -> Problem:
    """Logistic growth, y' = y (1 - y)."""
    return Problem(
        name="logistic",
        rate=lambda t, y: y * (1 - y),
        jacobian=lambda t, y: (1 - 2 * y)[..., None],
        start=np.array([0.1]),
        interval=(0.0, 4.0),
        exact=lambda t: 1 / (1 + 9 * np.exp(-t))[:, None],
    )


@pytest.mark.parametrize(("order", "kept"), [(4, 1.0), (5, 0.0)])
def test_the_orders_seen_are_four_and_five(order, kept):
    """The fourth order is the fifth less the difference that `attempt` gives."""
    each, errors = smooth(), []
    for count in (40, 80, 160):
        step, state = 4 / count, each.start
        for i in range(count):
            after, difference = fehlberg.attempt(each.rate, i * step, state, step)
            state = after - kept * difference
        errors.append(abs(state[0] - 1 / (1 + 9 * np.exp(-4))))
    slopes = np.log2(np.array(errors[:-1]) / errors[1:])
    assert slopes == pytest.approx(order, abs=0.25)


@pytest.mark.parametrize(("weights", "last"), [(fehlberg.FOURTH, (1 / 104, 0)),
                                               (fehlberg.FIFTH, (1 / 120, 1 / 2080))])  # fmt: skip
def test_growth_is_the_polynomial_of_the_method(weights, last):
    for z in (-3.0, -0.5, 0.7, 1.5j, -2 + 1j):
        powers = [1, z, z**2 / 2, z**3 / 6, z**4 / 24, last[0] * z**5, last[1] * z**6]
        assert fehlberg.growth(z, weights) == pytest.approx(sum(powers), rel=1e-12)


@pytest.mark.parametrize("z", [-3.0, 0.7, -2 + 1j])
def test_a_step_multiplies_a_linear_solution_by_its_growth(z):
    after, difference = fehlberg.attempt(lambda t, y: z * y, 0.0, np.ones(1, complex), 1.0)
    assert after[0] == pytest.approx(fehlberg.growth(z), rel=1e-13)
    fourth = fehlberg.growth(z, fehlberg.FOURTH)
    assert (after - difference)[0] == pytest.approx(fourth, rel=1e-13)


def test_steps_up_to_the_stability_limit_do_not_grow_a_decay():
    for weights in (fehlberg.FOURTH, fehlberg.FIFTH):
        end = fehlberg.stability_limit(weights)
        inside = [abs(fehlberg.growth(-x, weights)) for x in np.linspace(0.01, end - 1e-9, 500)]
        assert max(inside) <= 1
        assert abs(fehlberg.growth(-end - 1e-6, weights)) > 1


def test_the_step_rule_keeps_to_its_bounds():
    assert fehlberg.factor(1.0) == pytest.approx(0.9)
    assert fehlberg.factor(32.0) == pytest.approx(0.45)
    assert fehlberg.factor([0.0, 1e-30, 1e30, np.inf]) == pytest.approx([5, 5, 0.1, 0.1])


@pytest.mark.parametrize("rtol", [1e-4, 1e-7, 1e-10])
def test_the_error_follows_the_tolerance(rtol):
    found = solve.run(smooth(), "rkf45", rtol=rtol)
    assert found.end_error is not None
    assert found.end_error <= 10 * rtol


@pytest.mark.parametrize("solver", ["rk45", "radau"])
def test_a_tolerance_is_met_as_it_was_asked_for_or_refused(solver):
    """SciPy takes 2.2e-14 for smaller ones, and the result would name the other."""
    for rtol in (1e-14, 2e-14):
        with pytest.raises(OdeError, match="Give a number from 1e-13"):
            solve.run(smooth(), solver, rtol=rtol)


@pytest.mark.parametrize("name", ["eq8", "linear", "threebody"])
def test_rkf45_and_scipy_agree(name):
    ours, theirs = (solve.run(name, solver, rtol=1e-8) for solver in ("rkf45", "rk45"))
    assert ours.states[-1] == pytest.approx(theirs.states[-1], abs=1e-6)
    assert ours.times[-1] == theirs.times[-1]


def test_time_runs_as_fast_as_one_likes():
    """A decay that is twice as fast is solved by the same steps, half as long; bit for bit."""
    slow, fast = linear([-1.0, -8.0]), linear([-2.0, -16.0], until=0.5)
    one, other = (fehlberg.integrate(each, rtol=1e-6) for each in (slow, fast))
    assert len(one.times) > 20
    assert (one.times == 2 * other.times).all()
    assert (one.states == other.states).all()


def test_many_steps_at_once_are_steps_one_by_one():
    each = problem("threebody")
    states = each.start + np.random.default_rng(0).uniform(-0.1, 0.1, (4, 12))
    steps = np.array([0.01, 0.02, 0.03, 0.04])
    together = fehlberg.attempt(each.rate, np.zeros(4), states, steps)
    for i in range(4):
        alone = fehlberg.attempt(each.rate, 0.0, states[i], steps[i])
        assert (together[0][i] == alone[0]).all()
        assert (together[1][i] == alone[1]).all()


def test_a_resting_state_is_crossed_in_one_step():
    rest = linear([-1.0, -2.0], start=[0.0, 0.0])
    assert len(fehlberg.integrate(rest).times) == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: solve.run("eq8", "rk54"), "no solver called 'rk54'. Did you mean"),
        (lambda: solve.run("eq8", rtol=0.0), "The relative tolerance is 0.0. Give a number from"),
        (lambda: solve.run("eq8", rtol=np.nan), "The relative tolerance is nan"),
        (lambda: fehlberg.integrate(problem("eq8"), first=0.0), "a positive number, and 0.0 is"),
        (lambda: fehlberg.integrate(problem("robertson"), limit=50), "RKF45 tried 50 steps and"),
        (lambda: solve.by_scipy(solve.RK45, problem("pollu"), rtol=1e-3, limit=50),
         "RK45 took 50 steps and is at t = .* of 'pollu'. Try Radau"),
    ],
)  # fmt: skip
def test_what_no_solver_can_do_is_refused_in_a_sentence(wrong, message):
    with pytest.raises((OdeError, LookupError), match=message):
        wrong()


def blowing_up(power: float) -> Problem:
    """y' = y^power from one, which is infinite at t = 1 / (power - 1)."""
    return Problem(
        name="blow-up",
        rate=lambda t, y: y**power,
        jacobian=lambda t, y: (power * y ** (power - 1))[..., None],
        start=np.ones(1),
        interval=(0.0, 3.0),
    )


@pytest.mark.parametrize("solver", ["rkf45", "rk45", "radau"])
def test_a_solution_that_becomes_infinite_is_refused(solver):
    with pytest.raises(OdeError, match=r"at t = 1 of 'blow-up'|on 'blow-up' at t = 1"):
        solve.run(blowing_up(2.0), solver)


def test_a_rate_that_is_not_finite_at_the_start_is_named():
    bad = Problem("bad", lambda t, y: y / 0.0 * np.nan, lambda t, y: y, np.ones(1), (0.0, 1.0))
    with np.errstate(all="ignore"), pytest.raises(NonFiniteError, match="rate of 'bad' is not"):
        fehlberg.integrate(bad)
