"""What a solver left behind: where it stopped on its way, and how hard it worked."""

from dataclasses import dataclass

import numpy as np

from stiffnet.errors import OdeError
from stiffnet.ode.problem import Floats

LIMIT = 200_000
"""Steps after which a solver is stopped: an explicit one would need ages for a stiff problem."""


@dataclass(frozen=True, eq=False)
class Track:
    """The accepted steps of one solution."""

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
