"""Runge-Kutta-Fehlberg 4(5): two orders from six evaluations, and the step size that follows.

States may be many at a time, (..., n), each with a time and a step of its own.
"""

from typing import Any

import numpy as np
from scipy.optimize import brentq

from stiffnet.errors import NonFiniteError, OdeError
from stiffnet.ode.problem import LIMIT, Floats, Problem, Rate, Track, check_step

NODES = np.array([0, 1 / 4, 3 / 8, 12 / 13, 1, 1 / 2])
STAGES = (
    np.array([]),
    np.array([1 / 4]),
    np.array([3 / 32, 9 / 32]),
    np.array([1932 / 2197, -7200 / 2197, 7296 / 2197]),
    np.array([439 / 216, -8, 3680 / 513, -845 / 4104]),
    np.array([-8 / 27, 2, -3544 / 2565, 1859 / 4104, -11 / 40]),
)
FOURTH = np.array([25 / 216, 0, 1408 / 2565, 2197 / 4104, -1 / 5, 0])
FIFTH = np.array([16 / 135, 0, 6656 / 12825, 28561 / 56430, -9 / 50, 2 / 55])
SAFETY, SHRINK, GROW = 0.9, 0.1, 5.0
SMALLEST = 10  # units in the last place of the time; shorter steps do not move it


def attempt(rate: Rate, time: Any, state: Floats, step: Any) -> tuple[Floats, Floats]:
    """Return the state after a step by the fifth order, and its difference from the fourth."""
    h = np.asarray(step, dtype=np.float64)[..., None]
    slopes: list[Floats] = []
    for node, weights in zip(NODES, STAGES, strict=True):
        moved = state + h * sum(w * k for w, k in zip(weights, slopes, strict=True))
        slopes.append(rate(time + node * step, moved))
    after = state + h * _weighted(FIFTH, slopes)
    return after, h * _weighted(FIFTH - FOURTH, slopes)


def factor(error: Any) -> Floats:
    """Return what to multiply a step by: 0.9 · error^(-1/5), within [0.1, 5].

    The error is in units of the tolerance; a step is accepted if it is at most one.
    """
    with np.errstate(divide="ignore"):
        wanted = SAFETY * np.asarray(error, dtype=np.float64) ** -0.2
    return np.clip(wanted, SHRINK, GROW)


def integrate(
    problem: Problem, *, rtol: float = 1e-6, first: float | None = None, limit: int = LIMIT
) -> Track:
    """Solve a problem with steps whose error, by the two orders, is at most the tolerance.

    Args:
        problem: What to solve; the absolute tolerance of a component is rtol times its floor.
        rtol: Relative tolerance of a step.
        first: Size of the first step; a guess from the initial rate if not given.
        limit: Number of attempts at which to stop.

    Raises:
        OdeError: If the tolerance or the first step is not positive, the steps become too small
            for float64, or the limit is reached.
    """
    check_tolerance(rtol)
    time, last = problem.interval
    state = problem.start
    floors = problem.floors()
    step = _first_step(problem, rtol) if first is None else first
    check_step(step)
    times, states, tried = [time], [state], 0
    while time < last:
        step = min(step, last - time)
        _check_progress(problem.name, time, step, tried, limit)
        tried += 1
        after, difference = attempt(problem.rate, time, state, step)
        scale = rtol * np.maximum(floors, np.maximum(np.abs(state), np.abs(after)))
        error = float(np.max(np.abs(difference) / scale))
        if not np.isfinite(error):
            step *= SHRINK
            continue
        if error <= 1:
            time = last if step == last - time else time + step
            state = after
            times.append(time)
            states.append(state)
        step *= float(factor(error))
    rejected = tried - (len(times) - 1)
    return Track(np.array(times), np.array(states), tried * len(NODES), rejected=rejected)


def growth(z: complex, weights: Floats = FIFTH) -> complex:
    """Return R(z): what a step does to y' = λ y with z = h λ.

    >>> round(float(growth(-0.5)), 4)  # and e^-0.5 is 0.6065
    0.6065
    """
    slopes: list[complex] = []
    for row in STAGES:
        slopes.append(z * (1 + sum(w * k for w, k in zip(row, slopes, strict=True))))
    found: complex = 1 + sum(w * k for w, k in zip(weights, slopes, strict=True))
    return found


def stability_limit(weights: Floats = FIFTH) -> float:
    """Return the h |λ| up to which a step does not grow y' = λ y, for real λ < 0."""
    grid = np.linspace(0.1, 10, 991)
    over = np.array([abs(growth(-x, weights)) for x in grid]) > 1
    end = int(np.argmax(over))
    return float(brentq(lambda x: abs(growth(-x, weights)) - 1, grid[end - 1], grid[end]))


def check_tolerance(rtol: float) -> None:
    """Raise an OdeError unless a relative tolerance is between 1e-13 and one.

    SciPy's solvers take 2.2e-14 in the place of a smaller one, and only warn.
    """
    if not 1e-13 <= rtol < 1:
        raise OdeError(f"The relative tolerance is {rtol}. Give a number from 1e-13 to below 1.")


def _weighted(weights: Floats, slopes: list[Floats]) -> Any:
    return sum(w * k for w, k in zip(weights, slopes, strict=True) if w)


def _first_step(problem: Problem, rtol: float) -> float:
    """A step that changes the state by about the fifth root of the tolerance, at most."""
    first, last = problem.interval
    size = np.maximum(problem.floors(), np.abs(problem.start))
    pace = float(np.max(np.abs(problem.rate(first, problem.start)) / size))
    if not np.isfinite(pace):
        raise NonFiniteError(
            f"The rate of {problem.name!r} is not finite at its initial state. Give another one."
        )
    return min(last - first, rtol**0.2 / pace) if pace > 0 else last - first


def _check_progress(name: str, time: float, step: float, tried: int, limit: int) -> None:
    if tried >= limit:
        raise OdeError(
            f"RKF45 tried {limit} steps and is at t = {time:g} of {name!r}: the problem is too "
            "stiff for an explicit method. Take a shorter interval, or Radau."
        )
    if step < SMALLEST * np.spacing(abs(time)):
        raise OdeError(
            f"RKF45's step became {step:.3g} at t = {time:g} of {name!r}, too small for float64: "
            "a singularity, or a tolerance that cannot be met. Raise `rtol`."
        )
