"""An initial value problem, as far as it is known, and the steps of a solver through it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from stiffnet.errors import OdeError

Floats = npt.NDArray[np.float64]
Rate = Callable[[Any, Floats], Floats]
"""f(t, y) for a state (n,), or for many of them (..., n) with a time each."""


LIMIT = 200_000
"""Steps after which a solver is stopped: an explicit one would need ages for a stiff problem."""


@dataclass(frozen=True, eq=False)
class Problem:
    """The initial value problem y' = f(t, y), y(t₀) = y₀, on an interval.

    At least one of `exact` and `end` is there for every problem of our table.
    """

    name: str
    rate: Rate
    jacobian: Rate
    """∂f/∂y, (..., n, n), from formulas."""
    start: Floats
    interval: tuple[float, float]
    exact: Callable[[Floats], Floats] | None = None
    """The solution at an array of times, (times, n), where it has a closed form."""
    end: Floats | None = None
    """A reference solution at the interval's end."""
    floor: Floats | None = None
    """Sizes of the components below which their relative error no longer counts; one if not given.

    An absolute tolerance is the relative one times this.
    """

    def __post_init__(self) -> None:
        bad = np.flatnonzero(~np.isfinite(self.start))
        if bad.size:
            raise OdeError(
                f"Component {bad[0]} of the initial state of {self.name!r} is {self.start[bad[0]]}"
                ". Give finite numbers."
            )
        first, last = self.interval
        if not (np.isfinite(first) and np.isfinite(last) and first < last):
            raise OdeError(
                f"{self.name!r} cannot be solved from t = {first:g} to t = {last:g}. Give two "
                "finite times, the earlier one first."
            )

    def starting(self, start: npt.ArrayLike) -> "Problem":
        """Return the same equation from another initial state, whose solution is not known.

        Raises:
            OdeError: If the state is not finite or has another number of components.
        """
        state = np.asarray(start, dtype=np.float64)
        if state.shape != self.start.shape:
            raise OdeError(
                f"The initial state of {self.name!r} has {self.start.size} components, and the "
                f"one given has the shape {state.shape}. Give {self.start.size} numbers."
            )
        return replace(self, start=state, exact=None, end=None)

    def until(self, last: float) -> "Problem":
        """Return the same problem on an interval that ends elsewhere; `exact` stays."""
        return replace(self, interval=(self.interval[0], last), end=None)

    def expected_end(self) -> Floats | None:
        """The state at the interval's end: exact, by reference, or not known."""
        if self.exact is not None:
            end: Floats = self.exact(np.array([self.interval[1]]))[0]
            return end
        return self.end

    def floors(self) -> Floats:
        """`floor`, or ones."""
        return np.ones_like(self.start) if self.floor is None else self.floor


@dataclass(frozen=True, eq=False)
class Track:
    """The accepted steps of one solution, and how hard the solver worked."""

    times: Floats
    states: Floats
    evaluations: int
    jacobians: int = 0
    rejected: int = 0
    """Steps that were tried in vain; SciPy's solvers do not tell."""


def check_step(step: float) -> None:
    """Raise an OdeError unless a step size is a positive number."""
    if not (step > 0 and np.isfinite(step)):
        raise OdeError(f"A step size has to be a positive number, and {step} is not.")
