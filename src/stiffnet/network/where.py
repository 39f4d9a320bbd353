"""Choosing among steps or positions: all, by name or pattern, by a predicate, the stiffest."""

import difflib
import fnmatch
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from stiffnet.errors import StepError
from stiffnet.network.positions import Position
from stiffnet.results.ranking import stiffest
from stiffnet.trajectory.steps import Step

Where = str | Iterable[str] | Callable[[Any], bool]
"""``"all"``, names or patterns, or a predicate."""


class Measured(Protocol):
    """What `top_k` reads of a `StiffnessReport`."""

    @property
    def steps(self) -> Sequence[Step]:
        """Return the steps, in the order of the values."""

    @property
    def summary(self) -> Any:
        """Return what has `nsi_mean`, one value a step."""


Place = TypeVar("Place", Step, Position)


def chosen(places: Sequence[Place], where: Where, *, kind: str, network: str) -> list[Place]:
    """Return the places that `where` names, in the order in which they run; a StepError if none."""
    if isinstance(where, str) and where == "all":
        return list(places)
    if callable(where):
        held = [place for place in places if where(place)]
        if not held:
            raise StepError(
                f"The predicate given as `where` holds for none of the {len(places)} {kind}s of "
                f"{network} ({_some(places)}). Choose others."
            )
        return held
    named = where if isinstance(where, Iterable) else ()
    patterns = [where] if isinstance(where, str) else list(named)
    if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
        raise StepError(
            f"`where` is {where!r}; give 'all', names or patterns of {kind}s, or a predicate."
        )
    for pattern in patterns:
        if not any(matches(place.name, pattern) for place in places):
            near = difflib.get_close_matches(pattern, [place.name for place in places], n=3)
            named = " or ".join(map(repr, near)) if near else "one of " + _some(places)
            raise StepError(
                f"No {kind} of {network} is called {pattern!r}. There are {len(places)}; "
                f"did you mean {named}?"
            )
    return [p for p in places if any(matches(p.name, pattern) for pattern in patterns)]


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern, as in a shell, is this name or describes it."""
    return name == pattern or fnmatch.fnmatchcase(name, pattern)


def _some(places: Sequence[Step | Position]) -> str:
    names = [repr(place.name) for place in places]
    return ", ".join(names if len(names) < 7 else [*names[:3], "…", *names[-2:]])


def top_k(report: Measured, k: int) -> tuple[str, ...]:
    """Name the k stiffest steps of a measurement, for `attach(..., where=...)`.

    Only steps that count are ranked, by their mean NSI; the names come in the order of the network.

    Args:
        report: What `stiffnet.measure` gave.
        k: How many.

    Raises:
        StepError: If the network has fewer steps that count, or `k` is less than one.
    """
    ranked = stiffest(report.summary.nsi_mean, [step.counted for step in report.steps])
    if not 1 <= k <= len(ranked):
        raise StepError(
            f"`k` is {k}, and {len(ranked)} of the report's steps count. Give 1 to {len(ranked)}."
        )
    return tuple(report.steps[i].name for i in sorted(ranked[:k]))
