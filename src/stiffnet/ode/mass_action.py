"""Chemistry by the law of mass action: a table of reactions gives the rate and its Jacobian."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stiffnet.ode.problem import Floats


class MassAction:
    """Reactions of one or two molecules each; one goes at k times the product of its reactants.

    >>> reactions = MassAction(["A", "B"], [("A -> B + B", 3.0)])
    >>> reactions.rate(0.0, np.array([2.0, 0.0]))
    array([-6., 12.])
    """

    def __init__(self, species: Sequence[str], reactions: Sequence[tuple[str, float]]) -> None:
        number = {name: i for i, name in enumerate(species)}
        sides = [[_molecules(side) for side in text.split("->")] for text, _ in reactions]
        self._constants = np.array([constant for _, constant in reactions])
        self._first = _chosen([left[0] for left, _ in sides], number)
        self._second = _chosen([left[1] if left[1:] else "" for left, _ in sides], number)
        self.changes = np.zeros((len(reactions), len(species)))
        """(reactions, species): molecules made, less molecules used."""
        for row, (left, right) in zip(self.changes, sides, strict=True):
            for sign, side in ((-1, left), (1, right)):
                for name in side:
                    row[number[name]] += sign

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

    def _reactants(self, state: Floats) -> tuple[Floats, Floats]:
        """Concentrations of each reaction's first and second reactant; one where there is none."""
        alone = ~self._second.any(axis=1)
        return state @ self._first.T, state @ self._second.T + alone


def _molecules(side: str) -> list[str]:
    return [name.strip() for name in side.split("+")]


def _chosen(names: Sequence[str], number: Mapping[str, int]) -> npt.NDArray[np.float64]:
    """A row for each reaction with a one at its reactant."""
    rows = np.zeros((len(names), len(number)))
    for row, name in zip(rows, names, strict=True):
        if name:
            row[number[name]] = 1
    return rows
