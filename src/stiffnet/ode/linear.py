"""Linear systems with chosen eigenvalues, solved exactly by a matrix exponential."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import block_diag, expm

from stiffnet.errors import OdeError
from stiffnet.ode.problem import Floats, Problem


def linear(
    eigenvalues: Sequence[complex],
    *,
    start: npt.ArrayLike | None = None,
    seed: int = 0,
    until: float = 1.0,
) -> Problem:
    """Return y' = A y, with A normal, of these eigenvalues, in random orthogonal axes.

    Args:
        eigenvalues: Real ones once each. A complex one stands for itself and its conjugate.
        start: The initial state; one in every eigenspace if not given.
        seed: Random seed of the axes.
        until: Where the interval ends that begins at zero.

    Raises:
        OdeError: If there is no eigenvalue, one is not finite, or the state is of another size.
    """
    matrix, axes = normal_matrix(eigenvalues, seed=seed)
    state = axes.sum(axis=1) if start is None else np.asarray(start, dtype=np.float64)
    if state.shape != matrix.shape[:1]:
        raise OdeError(
            f"The initial state of 'linear' has {len(matrix)} components, one for each eigenvalue "
            f"(two for a complex one), and the one given has the shape {state.shape}."
        )

    def rate(time: Any, state: Floats) -> Floats:
        return state @ matrix.T

    def jacobian(time: Any, state: Floats) -> Floats:
        return np.broadcast_to(matrix, (*state.shape[:-1], *matrix.shape))

    def exact(times: Floats) -> Floats:
        return np.asarray(expm(times[:, None, None] * matrix) @ state)

    return Problem(
        name="linear",
        rate=rate,
        jacobian=jacobian,
        start=state,
        interval=(0.0, until),
        exact=exact,
    )


def normal_matrix(eigenvalues: Sequence[complex], *, seed: int = 0) -> tuple[Floats, Floats]:
    """Return a normal matrix of these eigenvalues, and its orthogonal axes as columns.

    It is symmetric where all eigenvalues are real; its axes are its eigenvectors then.
    """
    values = np.asarray(eigenvalues, dtype=np.complex128)
    if values.size == 0 or not np.isfinite(values).all():
        raise OdeError(
            f"The eigenvalues {list(eigenvalues)} make no linear system. Give one or more finite "
            "numbers."
        )
    blocks = block_diag(*(_block(value) for value in values))
    random = np.random.default_rng(seed).standard_normal(blocks.shape)
    axes = np.asarray(np.linalg.qr(random).Q)
    return axes @ blocks @ axes.T, axes


def _block(value: complex) -> Floats:
    """The real matrix of an eigenvalue: a number, or a turn and stretch of the plane."""
    if value.imag == 0:
        return np.array([[value.real]])
    return np.array([[value.real, value.imag], [-value.imag, value.real]])
