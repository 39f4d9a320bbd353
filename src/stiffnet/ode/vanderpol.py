"""Van der Pol's oscillator, y₁' = y₂, ε y₂' = (1 - y₁²) y₂ - y₁: stiff where it creeps."""

from typing import Any

import numpy as np

from stiffnet.errors import OdeError
from stiffnet.ode.problem import Floats, Problem

_EPSILON = 1e-6
_END = np.array([1.706167732170483, -0.8928097010247975])  # IVP test set, problem VDPOL


def vanderpol(epsilon: float = _EPSILON) -> Problem:
    """Return the oscillator from (2, 0), on the interval from 0 to 2.

    Args:
        epsilon: Small for a stiff problem. The reference end state is known for 1e-6 only, which
            is the value of the test set for solvers of initial value problems.

    Raises:
        OdeError: If epsilon is not a positive number.
    """
    if not (epsilon > 0 and np.isfinite(epsilon)):
        raise OdeError(
            f"Van der Pol's epsilon is {epsilon}. Give a positive number; 1e-6 is usual."
        )

    def rate(time: Any, state: Floats) -> Floats:
        place, speed = state[..., 0], state[..., 1]
        return np.stack([speed, ((1 - place**2) * speed - place) / epsilon], axis=-1)

    def jacobian(time: Any, state: Floats) -> Floats:
        place, speed = state[..., 0], state[..., 1]
        upper = np.stack([np.zeros_like(place), np.ones_like(place)], axis=-1)
        lower = np.stack([-2 * place * speed - 1, 1 - place**2], axis=-1) / epsilon
        return np.stack([upper, lower], axis=-2)

    return Problem(
        name="vanderpol" if epsilon == _EPSILON else f"vanderpol with epsilon {epsilon:g}",
        rate=rate,
        jacobian=jacobian,
        start=np.array([2.0, 0.0]),
        interval=(0.0, 2.0),
        end=_END if epsilon == _EPSILON else None,
    )
