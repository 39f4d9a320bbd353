"""SciPy's solvers on our problems, with both indices of stiffness along the solution."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.integrate import LSODA, RK45, Radau

from stiffnet.errors import OdeError
from stiffnet.ode import fehlberg
from stiffnet.ode.indices import stiffness_aware_index, stiffness_index
from stiffnet.ode.problem import LIMIT, Floats, Problem, Track
from stiffnet.ode.problems import problem as named
from stiffnet.registry import Entry, Registry
from stiffnet.results.ode import OdeSolution


def by_scipy(make: type[Any], problem: Problem, *, rtol: float, limit: int = LIMIT) -> Track:
    """Solve a problem by one of SciPy's solvers, step by step; an OdeError if it gives up."""
    first, last = problem.interval
    options = {} if make is RK45 else {"jac": problem.jacobian}
    atol = rtol * problem.floors()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a solver that gives up warns first, and then says so
        solver = make(problem.rate, first, problem.start, last, rtol=rtol, atol=atol, **options)
        times, states, message = [first], [problem.start], None
        while solver.status == "running" and len(times) <= limit:
            message = solver.step()
            times.append(solver.t)
            states.append(solver.y)
    if solver.status == "failed":
        raise OdeError(
            f"{make.__name__} gave up on {problem.name!r} at t = {solver.t:g}: {message} Try "
            "another solver or tolerance."
        )
    if solver.status == "running":
        raise OdeError(
            f"{make.__name__} took {limit} steps and is at t = {solver.t:g} of {problem.name!r}. "
            "Try Radau, a shorter interval or a larger `rtol`."
        )
    return Track(np.array(times), np.array(states), int(solver.nfev), int(solver.njev))


SOLVERS: Registry[Callable[..., Track]] = Registry(
    "solver",
    [
        Entry("rk45", partial(by_scipy, RK45), "explicit Runge-Kutta 5(4), by SciPy"),
        Entry("radau", partial(by_scipy, Radau), "implicit Runge-Kutta of order 5, by SciPy"),
        Entry("lsoda", partial(by_scipy, LSODA), "changes between Adams and BDF, by SciPy"),
        Entry("rkf45", fehlberg.integrate, "explicit Runge-Kutta-Fehlberg 4(5), ours"),
    ],
)


def run(problem: str | Problem, solver: str = "radau", *, rtol: float = 1e-6) -> OdeSolution:
    """Solve a problem, and take SI and SAI at the solver's own steps.

    Args:
        problem: A name of the table, or a problem.
        solver: A name of `SOLVERS`.
        rtol: Relative tolerance; the absolute one is this times the problem's floor.

    Raises:
        UnknownNameError: If no problem or solver has that name.
        OdeError: If the solver gives up, or the tolerance is out of range.
    """
    chosen = named(problem)
    solve = SOLVERS[solver].value
    fehlberg.check_tolerance(rtol)
    track = solve(chosen, rtol=rtol)
    return OdeSolution(
        problem=chosen.name,
        solver=solver,
        rtol=rtol,
        evaluations=track.evaluations,
        jacobians=track.jacobians,
        times=track.times,
        states=track.states,
        stiffness_index=stiffness_index(chosen.jacobian(track.times, track.states)),
        stiffness_aware_index=stiffness_aware_index(track.times, track.states),
        end_error=end_error(chosen, track.states[-1]),
    )


def end_error(problem: Problem, state: Floats) -> float | None:
    """Return max |y - y_ref| / max(|y_ref|, floor) at the interval's end, or None without y_ref."""
    expected = problem.expected_end()
    if expected is None:
        return None
    scale = np.maximum(np.abs(expected), problem.floors())
    return float(np.max(np.abs(state - expected) / scale))
