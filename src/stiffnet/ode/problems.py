"""The table of problems, by name."""

from stiffnet.ode.chemistry import pollu, robertson
from stiffnet.ode.linear import eq8, linear
from stiffnet.ode.problem import Problem
from stiffnet.ode.threebody import threebody
from stiffnet.ode.vanderpol import vanderpol
from stiffnet.registry import Entry, Registry

PROBLEMS: Registry[Problem] = Registry(
    "problem",
    [
        Entry("eq8", eq8(), "y' = -1000 y + 3000 - 2000 exp(-t); exact solution"),
        Entry("linear", linear([-1000.0, -10.0, -1.0]), "eigenvalues -1000, -10, -1; exact"),
        Entry("vanderpol", vanderpol(), "relaxation oscillator, epsilon 1e-6; reference end"),
        Entry("robertson", robertson(), "three reactions to t = 1e11; reference end"),
        Entry("pollu", pollu(), "20 species, 25 reactions of air pollution; reference end"),
        Entry("threebody", threebody(), "Lagrange's triangle, eccentricity 0.8; exact solution"),
    ],
)


def problem(name: str | Problem, until: float | None = None) -> Problem:
    """Return the problem of this name, or the one that was given; it may end elsewhere.

    Raises:
        UnknownNameError: If the table has no such name; the nearest ones are in the message.
    """
    found = name if isinstance(name, Problem) else PROBLEMS[name].value
    return found if until is None else found.until(until)
