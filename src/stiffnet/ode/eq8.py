"""The block-stiffness paper's Equation 8: y' = -1000 y + 3000 - 2000 exp(-t), y(0) = 0."""

from typing import Any

import numpy as np

from stiffnet.ode.problem import Floats, Problem

EIGENVALUE = -1000.0


def eq8() -> Problem:
    """Return the paper's example of a stiff equation, from 0 to 0.1.

    The solution is 3 - (997 e^(-1000 t) + 2000 e^(-t)) / 999. The paper's Equation 9 prints the
    two coefficients as 0.998 and 2.002.
    """
    return Problem(
        name="eq8",
        rate=_rate,
        jacobian=_jacobian,
        start=np.zeros(1),
        interval=(0.0, 0.1),
        exact=_exact,
    )


def _rate(time: Any, state: Floats) -> Floats:
    forcing = np.asarray(3000.0 - 2000.0 * np.exp(-np.asarray(time, dtype=np.float64)))
    return EIGENVALUE * state + forcing[..., None]


def _jacobian(time: Any, state: Floats) -> Floats:
    return np.full((*state.shape, 1), EIGENVALUE)


def _exact(times: Floats) -> Floats:
    decays = 997 * np.exp(EIGENVALUE * times) + 2000 * np.exp(-times)
    return np.asarray(3 - decays[:, None] / 999)
