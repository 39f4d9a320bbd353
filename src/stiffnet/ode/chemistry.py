"""Chemistry by the law of mass action, and two problems of the IVP test set that are of it.

A table of reactions gives the rate and its Jacobian.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stiffnet.ode.problem import Floats, Problem


class MassAction:
    """Reactions of one or two molecules each; one goes at k times the product of its reactants.

    >>> reactions = MassAction(["A", "B"], [("A -> B + B", 3.0)])
    >>> reactions.rate(0.0, np.array([2.0, 0.0]))
    array([-6., 12.])
    """

    def __init__(self, species: Sequence[str], reactions: Sequence[tuple[str, float]]) -> None:
        number = {name: i for i, name in enumerate(species)}
        self._constants = np.array([constant for _, constant in reactions])
        self._first, self._second, self.changes = np.zeros((3, len(reactions), len(species)))
        """(reactions, species): the reactants; and molecules made, less molecules used."""
        for row, (text, _) in enumerate(reactions):
            used, made = (
                [number[name.strip()] for name in side.split("+")] for side in text.split("->")
            )
            for reactant, place in zip((self._first, self._second), used, strict=False):
                reactant[row, place] = 1
            np.subtract.at(self.changes[row], used, 1)
            np.add.at(self.changes[row], made, 1)

    def rate(self, time: Any, state: Floats) -> Floats:
        """Return y' of concentrations (..., species); time does not matter."""
        first, second = self._reactants(state)
        return (self._constants * first * second) @ self.changes

    def jacobian(self, time: Any, state: Floats) -> Floats:
        """Return ∂y'/∂y, (..., species, species)."""
        first, second = self._reactants(state)
        by_first = (self._constants * second)[..., None] * self._first
        by_second = (self._constants * first)[..., None] * self._second
        return self.changes.T @ (by_first + by_second)

    def problem(self, name: str, start: Floats, last: float, end: Floats) -> Problem:
        """Return these reactions as a problem from 0 to `last`, whose end state is published."""
        return Problem(
            name, self.rate, self.jacobian, start, interval=(0.0, last), end=end, floor=end
        )

    def _reactants(self, state: Floats) -> tuple[Floats, Floats]:
        """Concentrations of each reaction's first and second reactant; one where there is none."""
        alone = ~self._second.any(axis=1)
        return state @ self._first.T, state @ self._second.T + alone


ROBERTSON = MassAction(
    ["A", "B", "C"],
    [("A -> B", 0.04), ("B + B -> C + B", 3e7), ("B + C -> A + C", 1e4)],
)
"""Three reactions, whose rate constants span nine orders of magnitude."""


def robertson() -> Problem:
    """Return the problem ROBER with its test set's interval, from 0 to 1e11."""
    end = np.array([0.2083340149701255e-7, 0.8333360770334713e-13, 0.9999999791665050])
    return ROBERTSON.problem("robertson", np.array([1.0, 0.0, 0.0]), 1e11, end)


SPECIES = (
    "NO2", "NO", "O3P", "O3", "HO2", "OH", "HCHO", "CO", "ALD", "MEO2",
    "C2O3", "CO2", "PAN", "CH3O", "HNO3", "O1D", "SO2", "SO4", "NO3", "N2O5",
)  # fmt: skip
POLLU = MassAction(
    SPECIES,
    [
        ("NO2 -> NO + O3P", 0.35),
        ("NO + O3 -> NO2", 26.6),
        ("HO2 + NO -> NO2 + OH", 1.23e4),
        ("HCHO -> HO2 + HO2 + CO", 8.6e-4),
        ("HCHO -> CO", 8.2e-4),
        ("HCHO + OH -> HO2 + CO", 1.5e4),
        ("ALD -> MEO2 + HO2 + CO", 1.3e-4),
        ("ALD + OH -> C2O3", 2.4e4),
        ("C2O3 + NO -> NO2 + MEO2 + CO2", 1.65e4),
        ("C2O3 + NO2 -> PAN", 9e3),
        ("PAN -> C2O3 + NO2", 0.022),
        ("MEO2 + NO -> CH3O + NO2", 1.2e4),
        ("CH3O -> HCHO + HO2", 1.88),
        ("NO2 + OH -> HNO3", 1.63e4),
        ("O3P -> O3", 4.8e6),
        ("O3 -> O1D", 3.5e-4),
        ("O3 -> O3P", 0.0175),
        ("O1D -> OH + OH", 1e8),
        ("O1D -> O3P", 4.44e11),
        ("SO2 + OH -> SO4 + HO2", 1.24e3),
        ("NO3 -> NO", 2.1),
        ("NO3 -> NO2 + O3P", 5.78),
        ("NO2 + O3 -> NO3", 0.0474),
        ("NO3 + NO2 -> N2O5", 1.78e3),
        ("N2O5 -> NO3 + NO2", 3.12),
    ],
)
"""20 species and 25 reactions of air pollution (Verwer 1994)."""
_START = {"NO": 0.2, "O3": 0.04, "HCHO": 0.1, "CO": 0.3, "ALD": 0.01, "SO2": 0.007}
_END = np.array(
    [
        0.5646255480022769e-1, 0.1342484130422339, 0.4139734331099427e-8, 0.5523140207484359e-2,
        0.2018977262302196e-6, 0.1464541863493966e-6, 0.7784249118997964e-1, 0.3245075353396018,
        0.7494013383880406e-2, 0.1622293157301561e-7, 0.1135863833257075e-7, 0.2230505975721359e-2,
        0.2087162882798630e-3, 0.1396921016840158e-4, 0.8964884856898295e-2, 0.4352846369330103e-17,
        0.6899219696263405e-2, 0.1007803037365946e-3, 0.1772146513969984e-5, 0.5682943292316392e-4,
    ]
)  # fmt: skip


def pollu() -> Problem:
    """Return the problem with its test set's interval, from 0 to 60 minutes."""
    start = np.array([_START.get(name, 0.0) for name in SPECIES])
    return POLLU.problem("pollu", start, 60.0, _END)
