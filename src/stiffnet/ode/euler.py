"""Forward Euler, y ← y + h f(t, y), and the step size above which it grows what should decay."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stiffnet.errors import NonFiniteError, OdeError
from stiffnet.ode.problem import Floats, Problem, check_step
from stiffnet.ode.problems import problem as named
from stiffnet.results.ode import EulerComparison

FIGURE_3 = (0.0005, 0.0015, 0.0019, 0.0021)
"""The step size of the paper's Figure 3 is the second; the others are around the limit 0.002."""


def euler(problem: Problem, step: float) -> tuple[Floats, Floats]:
    """Return times (steps + 1,) and states of as many whole steps as the interval has room for.

    Raises:
        OdeError: If the step is not positive, or longer than the interval.
        NonFiniteError: If the states leave the range of float64.
    """
    first, last = problem.interval
    check_step(step)
    count = int((last - first) / step * (1 + 1e-12))  # 0.1 / 0.001 is 100 steps, not 99
    if count < 1:
        raise OdeError(
            f"No step of {step:g} fits into the interval from {first:g} to {last:g}. Give a "
            "smaller one."
        )
    times = np.asarray(first + step * np.arange(count + 1), dtype=np.float64)
    states = np.empty((count + 1, problem.start.size))
    states[0] = problem.start
    with np.errstate(over="ignore", invalid="ignore"):
        for i in range(count):
            states[i + 1] = states[i] + step * problem.rate(times[i], states[i])
    bad = np.flatnonzero(~np.isfinite(states).all(axis=1))
    if bad.size:
        raise NonFiniteError(
            f"Forward Euler with step {step:g} left the range of float64 at t = "
            f"{times[bad[0]]:g} of {problem.name!r}. Take smaller steps or a shorter interval."
        )
    return times, states


def amplification(step: float, eigenvalues: npt.ArrayLike) -> float:
    """Return max |1 + h λ|, by which a step of forward Euler stretches the fastest mode.

    >>> amplification(0.0015, -1000.0)
    0.5
    """
    return float(np.abs(1 + step * np.asarray(eigenvalues)).max())


def largest_stable_step(eigenvalues: npt.ArrayLike) -> float:
    """Return the h at which max |1 + h λ| becomes one: the least of -2 Re λ / |λ|².

    Raises:
        OdeError: If an eigenvalue has no negative real part, so that no step is small enough.
    """
    values = np.asarray(eigenvalues, dtype=np.complex128)
    if not (values.real < 0).all():
        raise OdeError(
            "An eigenvalue has no negative real part, so no step makes forward Euler decay. Take "
            "a problem whose solutions all decay."
        )
    return float((-2 * values.real / np.abs(values) ** 2).min())


def run(
    problem: str | Problem = "eq8", steps: Sequence[float] = FIGURE_3, *, until: float | None = None
) -> EulerComparison:
    """Solve a problem by forward Euler with several step sizes, against its exact solution.

    Args:
        problem: A name of the table, or a problem; with an exact solution.
        steps: The step sizes.
        until: Where the interval ends; the problem's own end if not given.

    Raises:
        OdeError: If the problem has no exact solution, or does not decay, or a step is wrong.
        UnknownNameError: If no problem has that name.
    """
    chosen = named(problem, until)
    if chosen.exact is None:
        raise OdeError(
            f"{chosen.name!r} has no exact solution to compare with. Choose 'eq8' or 'linear'."
        )
    eigenvalues = np.linalg.eigvals(chosen.jacobian(chosen.interval[0], chosen.start))
    limit = largest_stable_step(eigenvalues)
    found = [euler(chosen, step) for step in steps]
    errors = [np.abs(y - chosen.exact(t)).max(axis=1) for t, y in found]
    return EulerComparison(
        problem=chosen.name,
        limit=limit,
        steps=np.asarray(steps, dtype=np.float64),
        amplification=np.array([amplification(step, eigenvalues) for step in steps]),
        times=tuple(times for times, _ in found),
        states=tuple(states for _, states in found),
        errors=tuple(errors),
    )
