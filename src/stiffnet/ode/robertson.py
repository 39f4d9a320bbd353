"""Robertson's three reactions, whose rate constants span nine orders of magnitude."""

import numpy as np

from stiffnet.ode.mass_action import MassAction
from stiffnet.ode.problem import Problem

REACTIONS = MassAction(
    ["A", "B", "C"],
    [("A -> B", 0.04), ("B + B -> C + B", 3e7), ("B + C -> A + C", 1e4)],
)
# IVP test set, problem ROBER
_END = np.array([0.2083340149701255e-7, 0.8333360770334713e-13, 0.9999999791665050])


def robertson() -> Problem:
    """Return the problem with its test set's interval, from 0 to 1e11."""
    return Problem(
        name="robertson",
        rate=REACTIONS.rate,
        jacobian=REACTIONS.jacobian,
        start=np.array([1.0, 0.0, 0.0]),
        interval=(0.0, 1e11),
        end=_END,
        floor=_END,
    )
