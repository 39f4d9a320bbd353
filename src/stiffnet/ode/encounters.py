"""Close encounters of three bodies: in how many runs they happen, and how much time they take.

An encounter lasts while the smallest of the three distances is below a threshold.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stiffnet.errors import OdeError
from stiffnet.ode import fehlberg, threebody
from stiffnet.ode.problem import Floats
from stiffnet.results.ode import Encounters

THRESHOLDS = tuple(np.round(10 ** np.arange(-2, 0.301, 0.05), 6))
Integers = npt.NDArray[np.int64]


def run(
    runs: int | Floats = 1000,
    *,
    seed: int = 0,
    duration: float = 20.0,
    interval: float = 0.1,
    thresholds: Sequence[float] = THRESHOLDS,
    rtol: float = 1e-9,
) -> Encounters:
    """Let triples move for some time, and count their encounters.

    Args:
        runs: How many triples; `threebody.ring` draws them. Or their initial states, (runs, 12).
        seed: Random seed of triples that are drawn.
        duration: How long each moves. Going around once takes about 8.
        interval: Length of the intervals of which those with an encounter are counted.
        thresholds: Distances below which two bodies are in an encounter.
        rtol: Tolerance of a step, relative to the smallest distance.

    Raises:
        OdeError: If there are no runs, or a number is out of range.
    """
    starts = runs if isinstance(runs, np.ndarray) else threebody.ring(runs, seed=seed)
    levels = np.asarray(thresholds, dtype=np.float64)
    bins = _check(starts, duration, interval, levels, rtol)
    flock = _Flock(starts, levels, bins, duration / bins, rtol)
    while flock.moving.size:
        flock.advance()
    energy = threebody.energy(starts)
    momenta = [threebody.angular_momentum(states) for states in (starts, flock.ends)]
    return Encounters(
        seed=None if starts is runs else seed,
        duration=duration,
        interval=duration / bins,
        rtol=rtol,
        thresholds=levels,
        closest=flock.closest.min(axis=1),
        time=flock.inside / duration,
        intervals=(flock.closest[:, :, None] < levels).mean(axis=1),
        energy_error=np.abs(threebody.energy(flock.ends) - energy) / np.abs(energy),
        momentum_error=np.abs(momenta[1] - momenta[0]),
    )


class _Flock:
    """Runs that move at the same time, each with its own clock and its own step."""

    def __init__(
        self, starts: Floats, levels: Floats, bins: int, interval: float, rtol: float
    ) -> None:
        self._levels, self._interval, self._rtol = levels, interval, rtol
        self.moving: Integers = np.arange(len(starts))
        self.ends = starts.copy()
        self.inside = np.zeros((len(starts), len(levels)))
        self.closest = np.full((len(starts), bins), np.inf)
        self._state = starts.copy()
        self._bin = np.zeros(len(starts), dtype=np.int64)
        self._within = np.zeros(len(starts))  # time since the interval began
        self._near = threebody.separations(starts).min(axis=1)
        self._step = np.minimum(0.01 * self._near**1.5, interval)

    def advance(self) -> None:
        """Try one step of every run; steps end where intervals end."""
        left = self._interval - self._within
        cut = self._step >= left
        step = np.where(cut, left, self._step)
        with np.errstate(all="ignore"):  # a step that is far too long may hit another body
            after, difference = fehlberg.attempt(threebody.rate, 0.0, self._state, step)
            error = self._error(difference)
        error = np.where(np.isfinite(error), error, np.inf)
        taken = error <= 1
        near = np.where(taken, threebody.separations(after).min(axis=1), self._near)
        self._count(step, taken, near)
        wanted = step * fehlberg.factor(error)
        self._step = np.where(taken & cut, np.maximum(wanted, self._step), wanted)
        self._state = np.where(taken[:, None], after, self._state)
        self._near = near
        self._check_resolution()
        self._within = np.where(taken, np.where(cut, 0.0, self._within + step), self._within)
        self._bin += taken & cut
        self._retire()

    def _error(self, difference: Floats) -> Floats:
        """The two orders' difference in units of the tolerance.

        Places are measured by the smallest distance d, velocities by d^(-1/2), the speed that two
        bodies have there, so that an encounter is followed as well as the rest.
        """
        size = np.abs(difference)
        place = size[:, :6].max(axis=1) / self._near
        speed = size[:, 6:].max(axis=1) * np.sqrt(self._near)
        found: Floats = np.maximum(place, speed) / self._rtol
        return found

    def _count(self, step: Floats, taken: npt.NDArray[np.bool_], near: Floats) -> None:
        """Add the time that the step spent below each threshold; between its ends d is linear."""
        low, high = np.minimum(self._near, near), np.maximum(self._near, near)
        width = (high - low)[:, None]
        above = self._levels - low[:, None]
        share = np.divide(above, width, out=np.where(above > 0, 1.0, 0.0), where=width > 0)
        time = np.where(taken, step, 0.0)[:, None]
        self.inside[self.moving] += time * np.clip(share, 0.0, 1.0)
        where = self.moving[taken], self._bin[taken]
        self.closest[where] = np.minimum(self.closest[where], low[taken])

    def _check_resolution(self) -> None:
        """See that the rounding of places is below the tolerance of the smallest distance."""
        rounding = np.spacing(np.abs(self._state[:, :6]).max(axis=1))
        close = rounding > self._rtol * self._near
        if close.any():
            one = int(np.argmax(close))
            raise OdeError(
                f"Two bodies of run {self.moving[one]} come within {self._near[one]:.1e} of each "
                f"other, too close for float64 at rtol = {self._rtol:g}. Leave that run out, or "
                "raise `rtol`."
            )

    def _retire(self) -> None:
        done = self._bin == self.closest.shape[1]
        if done.any():
            self.ends[self.moving[done]] = self._state[done]
            for name in ("moving", "_state", "_bin", "_within", "_near", "_step"):
                setattr(self, name, getattr(self, name)[~done])


def _check(starts: Floats, duration: float, interval: float, levels: Floats, rtol: float) -> int:
    """See that the numbers make sense, and return how many intervals the duration has."""
    fehlberg.check_tolerance(rtol)
    if starts.ndim != 2 or len(starts) < 1 or starts.shape[1] != 12:
        raise OdeError(
            f"Initial states of three bodies are (runs, 12), with one run or more, and these are "
            f"{starts.shape}."
        )
    bad = np.flatnonzero(~np.isfinite(starts).all(axis=1))
    if bad.size:
        raise OdeError(f"The initial state of run {bad[0]} is not finite. Give finite numbers.")
    together = np.flatnonzero(threebody.separations(starts).min(axis=1) == 0)
    if together.size:
        raise OdeError(f"Two bodies of run {together[0]} start in one place. Move one of them.")
    if not (0 < interval <= duration and np.isfinite(duration)):
        raise OdeError(
            f"A run of length {duration:g} has no intervals of length {interval:g}. Give two "
            "positive numbers, the interval's not above the run's."
        )
    if levels.ndim != 1 or not levels.size or not ((levels > 0) & np.isfinite(levels)).all():
        raise OdeError("Thresholds are one or more positive distances; change the given ones.")
    return max(1, round(duration / interval))
