"""The StepNet paper's Theorem 2, in numbers: does SAI / SI tend to √c as |λ₁| grows?"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stiffnet.errors import OdeError
from stiffnet.ode.indices import norm, stiffness_aware_index, stiffness_index
from stiffnet.ode.linear import normal_matrix
from stiffnet.ode.problem import Floats, check_step
from stiffnet.results.ode import Theorem2Check

COEFFICIENTS = (0.6, 0.48, 0.64)
"""Of the state along the eigenvectors, the fastest first. They have norm one, so √c is 0.6."""
REST = (-10.0, -1.0)
"""The other eigenvalues."""
FORCING = (2.0, -1.0, 0.5)
"""The paper's a_i, of the constant forcing."""
FASTEST = tuple(-np.logspace(1, 6, 21))
INSTANT = 1e-6
"""Time between observations that stands for its limit zero, in units of 1 / |λ₁|."""


def run(
    coefficients: Sequence[float] = COEFFICIENTS,
    rest: Sequence[float] = REST,
    *,
    forcing: Sequence[float] = FORCING,
    fastest: Sequence[float] = FASTEST,
    interval: float = 0.01,
    later: float = 1.0,
    seed: int = 0,
) -> Theorem2Check:
    """Take SAI / SI of u' = J u + a with symmetric J, from exact solutions, for growing |λ₁|.

    Args:
        coefficients: c_i of the state at the start, one for each eigenvalue, λ₁'s first.
        rest: λ₂, λ₃, ..., all negative.
        forcing: a_i, constant in time.
        fastest: The values of λ₁; each at least as large as the others.
        interval: Time between observations of `Theorem2Check.observed`.
        later: Time at which `Theorem2Check.settled` looks.
        seed: Random seed of the eigenvectors, which do not matter.

    Raises:
        OdeError: If an eigenvalue is not negative, or the numbers do not fit together.
    """
    c, a = np.asarray(coefficients, dtype=np.float64), np.asarray(forcing, dtype=np.float64)
    slow = np.asarray(rest, dtype=np.float64)
    _check(c, a, slow, np.asarray(fastest, dtype=np.float64))
    check_step(interval)
    rows = [_ratios(c, np.array([first, *slow]), a, interval, later, seed) for first in fastest]
    columns: dict[str, Any] = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    limit = float(abs(c[0]) / np.linalg.norm(c))
    return Theorem2Check(limit=limit, interval=interval, later=later, **columns)


def predicted_ratio(c: Floats, eigenvalues: Floats, forcing: Floats) -> float:
    """Return √(c + Q) = ‖λ c + a‖ / (|λ₁| ‖c‖), the proof's last line.

    The paper's Eq. 30 lacks a factor c_i in the cross term 2 a_i c_i λ_i; it tends to zero in
    either form.
    """
    top = np.linalg.norm(eigenvalues * c + forcing)
    return float(top / (np.abs(eigenvalues).max() * np.linalg.norm(c)))


def _ratios(
    c: Floats, eigenvalues: Floats, a: Floats, interval: float, later: float, seed: int
) -> dict[str, float]:
    """SI, and SAI / SI at the start, as predicted, at the start coarsely, and later."""
    matrix, axes = normal_matrix(list(eigenvalues), seed=seed)
    si = float(stiffness_index(matrix))

    def state(time: float) -> Floats:
        return axes @ _coefficients(c, eigenvalues, a, time)

    def observed(gap: float) -> float:
        states = np.stack([state(0.0), state(gap)])
        return float(stiffness_aware_index(np.array([0.0, gap]), states)[0])

    size, pace = norm(np.stack([state(later), matrix @ state(later) + axes @ a]))
    return {
        "stiffness_index": si,
        "instant": observed(INSTANT / si) / si,
        "predicted": predicted_ratio(c, eigenvalues, a),
        "observed": observed(interval) / si,
        "settled": float(pace / size) / si if size > 0 else np.nan,
    }


def _coefficients(c: Floats, eigenvalues: Floats, a: Floats, time: float) -> Floats:
    """Of u(t) along the eigenvectors: c e^(λ t) + a (e^(λ t) - 1) / λ."""
    return c * np.exp(eigenvalues * time) + a * np.expm1(eigenvalues * time) / eigenvalues


def _check(c: Floats, a: Floats, slow: Floats, fastest: Floats) -> None:
    if not c.size == a.size == slow.size + 1:
        raise OdeError(
            f"There are {slow.size + 1} eigenvalues, {c.size} coefficients and {a.size} numbers "
            "of the forcing. Give as many of each."
        )
    if not all(np.isfinite(values).all() for values in (c, a, slow, fastest)):
        raise OdeError("Theorem 2 needs finite numbers, and one is not. Give another one.")
    if not ((slow < 0).all() and (fastest < 0).all()):
        raise OdeError("Theorem 2 is about negative eigenvalues, and one is not. Change its sign.")
    if slow.size and np.abs(fastest).min() < np.abs(slow).max():
        raise OdeError(
            f"λ₁ = {fastest[np.abs(fastest).argmin()]:g} is not the fastest eigenvalue beside "
            f"{slow[np.abs(slow).argmax()]:g}. Give larger ones."
        )
    if not c.any():
        raise OdeError("A state of zeros has no SAI. Give a coefficient that is not zero.")
