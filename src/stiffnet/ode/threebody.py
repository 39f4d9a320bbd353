"""Three bodies of mass one in the plane, with G = 1: how they move, and what they conserve.

A state is (..., 12): the places x₁ y₁ x₂ y₂ x₃ y₃, then the velocities in the same order.
"""

from typing import Any

import numpy as np
from scipy.optimize import brentq

from stiffnet.errors import OdeError
from stiffnet.ode.problem import Floats, Problem

_PULL = 1 / np.sqrt(3)  # on a corner of an equilateral triangle of radius one, to its middle
_FOLLOWING = np.array([1, 2, 0])


def threebody(eccentricity: float = 0.8) -> Problem:
    """Return Lagrange's solution: three bodies on equal ellipses, always a regular triangle.

    They start where they are farthest apart, at distance one from the middle, and go around once.
    The solution is exact but for Kepler's equation, which is solved to rounding.

    Raises:
        OdeError: If the eccentricity is not in [0, 1).
    """
    if not 0 <= eccentricity < 1:
        raise OdeError(
            f"An ellipse has no eccentricity {eccentricity}. Give a number from 0 to below 1."
        )
    axis = 1 / (1 + eccentricity)
    motion = np.sqrt(_PULL / axis**3)

    def exact(times: Floats) -> Floats:
        anomaly = np.array([_eccentric_anomaly(motion * t, eccentricity) for t in times])
        minor = axis * np.sqrt(1 - eccentricity**2)
        speed = motion / (1 + eccentricity * np.cos(anomaly))
        place = axis * (np.cos(anomaly) + eccentricity) + 1j * minor * np.sin(anomaly)
        velocity = speed * (-axis * np.sin(anomaly) + 1j * minor * np.cos(anomaly))
        return triangle(place, velocity)

    interval = (0.0, float(2 * np.pi / motion))
    return Problem("threebody", rate, jacobian, exact(np.zeros(1))[0], interval, exact=exact)


def triangle(place: Any, velocity: Any) -> Floats:
    """Return the state of a body, given as complex numbers, and its turns by 120° and 240°."""
    turns = np.exp(2j * np.pi * np.arange(3) / 3)
    both = np.concatenate([np.multiply.outer(z, turns) for z in (place, velocity)], axis=-1)
    return np.stack([both.real, both.imag], axis=-1).reshape(*both.shape[:-1], 12)


def ring(runs: int, *, seed: int, spread: float = 0.2) -> Floats:
    """Return (runs, 12) random states near circular motion, as the three-body data sets draw them.

    The bodies stand on the corners of a regular triangle, at a distance from its middle that is
    uniform in [0.9, 1.2], turned by a uniform angle. Each has the velocity of circular motion,
    with each of its two components changed by a factor of its own, uniform in 1 ± `spread`.

    Raises:
        OdeError: If there is no run to draw.
    """
    if runs < 1:
        raise OdeError(f"There is nothing to count in {runs} runs. Ask for one or more.")
    random = np.random.default_rng(seed)
    radius = random.uniform(0.9, 1.2, runs)
    direction = np.exp(1j * random.uniform(0, 2 * np.pi, runs))
    states = triangle(radius * direction, 1j * np.sqrt(_PULL / radius) * direction)
    states[:, 6:] *= random.uniform(1 - spread, 1 + spread, (runs, 6))
    return states


def rate(time: Any, state: Floats) -> Floats:
    """Return velocities and accelerations; each body is drawn to the other two."""
    sides = _sides(state)
    pulls = sides / _lengths(sides)[..., None] ** 3
    accelerations = pulls - pulls[..., [2, 0, 1], :]
    flat = accelerations.reshape(*state.shape[:-1], 6)
    return np.concatenate([state[..., 6:], flat], axis=-1)


def jacobian(time: Any, state: Floats) -> Floats:
    """Return ∂f/∂y, (..., 12, 12): velocities move places, and tides move velocities."""
    sides = _sides(state)
    length = _lengths(sides)[..., None, None]
    outer = sides[..., :, None] * sides[..., None, :]
    tides = np.eye(2) / length**3 - 3 * outer / length**5
    whole = np.zeros((*state.shape, 12))
    whole[..., :6, 6:] = np.eye(6)
    for side in range(3):
        one, other = (slice(2 * i, 2 * i + 2) for i in (side, _FOLLOWING[side]))
        for here, there in ((one, other), (other, one)):
            force = slice(here.start + 6, here.stop + 6)
            whole[..., force, there] += tides[..., side, :, :]
            whole[..., force, here] -= tides[..., side, :, :]
    return whole


def separations(state: Floats) -> Floats:
    """Return the distances of bodies 1 and 2, 2 and 3, 3 and 1, (..., 3)."""
    return _lengths(_sides(state))


def energy(state: Floats) -> Floats:
    """Return kinetic and potential energy together."""
    kinetic = (state[..., 6:] ** 2).sum(axis=-1) / 2
    return np.asarray(kinetic - (1 / separations(state)).sum(axis=-1))


def angular_momentum(state: Floats) -> Floats:
    """Return Σ x v_y - y v_x."""
    place, velocity = state[..., :6], state[..., 6:]
    turn = place[..., 0::2] * velocity[..., 1::2] - place[..., 1::2] * velocity[..., 0::2]
    return np.asarray(turn.sum(axis=-1))


def _sides(state: Floats) -> Floats:
    """From each body to the next one, (..., 3, 2)."""
    places = state[..., :6].reshape(*state.shape[:-1], 3, 2)
    return places[..., _FOLLOWING, :] - places


def _lengths(sides: Floats) -> Floats:
    return np.sqrt(sides[..., 0] ** 2 + sides[..., 1] ** 2)


def _eccentric_anomaly(mean: float, eccentricity: float) -> float:
    """Solve E + e sin E = M, which counts from the farthest point."""

    def missing(anomaly: float) -> float:
        return float(anomaly + eccentricity * np.sin(anomaly) - mean)

    return float(brentq(missing, mean - 1, mean + 1, xtol=1e-15, rtol=1e-15))
