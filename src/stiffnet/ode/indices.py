"""The two indices of stiffness of the StepNet paper: SI from a Jacobian, SAI from observations."""

import numpy as np

from stiffnet.errors import NonFiniteError, OdeError
from stiffnet.ode.problem import Floats


def stiffness_index(jacobians: Floats) -> Floats:
    """Return SI, the largest |Re λ| of the eigenvalues of each Jacobian (..., n, n).

    >>> stiffness_index(np.diag([-1000.0, 2.0])).item()
    1000.0

    Raises:
        NonFiniteError: If a Jacobian has an entry that is not finite.
    """
    if not np.isfinite(jacobians).all():
        raise NonFiniteError(
            "A Jacobian has an entry that is not finite, so it has no eigenvalues. Look at the "
            "state that it belongs to."
        )
    found: Floats = np.abs(np.linalg.eigvals(jacobians).real).max(axis=-1)
    return found


def stiffness_aware_index(times: Floats, states: Floats) -> Floats:
    """Return SAI of each of N observations but the last: ‖Δu / Δt‖ / ‖u‖ (Eq. 3).

    Where ‖u‖ is zero there is no index, and the value is NaN.

    Args:
        times: (N,), increasing.
        states: (N, n).

    Raises:
        OdeError: If times do not increase, or there are fewer than two observations.
        NonFiniteError: If a state is not finite.
    """
    if times.ndim != 1 or len(times) < 2 or len(states) != len(times):
        raise OdeError(
            f"SAI needs two or more observations, each with its time; there are {len(times)} "
            f"times and {len(states)} states."
        )
    gaps = np.diff(times)
    if not (gaps > 0).all():
        late = int(np.argmin(gaps > 0))
        raise OdeError(
            f"Observation {late + 1}, at t = {times[late + 1]:g}, is not later than the one "
            f"before it, at t = {times[late]:g}. Sort observations by time, each time once."
        )
    bad = np.flatnonzero(~np.isfinite(states).all(axis=1))
    if bad.size:
        raise NonFiniteError(
            f"Observation {bad[0]}, at t = {times[bad[0]]:g}, is not finite. Leave it out."
        )
    changes, norms = norm(np.diff(states, axis=0)) / gaps, norm(states[:-1])
    return np.divide(changes, norms, out=np.full_like(norms, np.nan), where=norms > 0)


def norm(states: Floats) -> Floats:
    """Return Euclidean norms over the last axis, also of numbers whose squares leave float64.

    >>> norm(np.array([[3e-200, 4e-200]]))
    array([5.e-200])
    """
    largest = np.abs(states).max(axis=-1, keepdims=True)
    shares = np.divide(states, largest, out=np.zeros_like(states), where=largest > 0)
    found: Floats = largest[..., 0] * np.linalg.norm(shares, axis=-1)
    return found
