"""Linear equations with exact solutions: systems with chosen eigenvalues, and Equation 8."""

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

    return Problem("linear", rate, jacobian, state, interval=(0.0, until), exact=exact)


def eq8() -> Problem:
    """Return the block-stiffness paper's example of a stiff equation, from 0 to 0.1.

    Its Equation 8 is y' = -1000 y + 3000 - 2000 exp(-t), y(0) = 0. The solution is
    3 - (997 e^(-1000 t) + 2000 e^(-t)) / 999. The paper's Equation 9 prints the two coefficients
    as 0.998 and 2.002.
    """

    def rate(time: Any, state: Floats) -> Floats:
        forcing = np.asarray(3000.0 - 2000.0 * np.exp(-np.asarray(time, dtype=np.float64)))
        return -1000.0 * state + forcing[..., None]

    def jacobian(time: Any, state: Floats) -> Floats:
        return np.full((*state.shape, 1), -1000.0)

    def exact(times: Floats) -> Floats:
        decays = 997 * np.exp(-1000.0 * times) + 2000 * np.exp(-times)
        return np.asarray(3 - decays[:, None] / 999)

    return Problem("eq8", rate, jacobian, np.zeros(1), interval=(0.0, 0.1), exact=exact)


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
