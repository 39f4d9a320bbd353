"""One table class for everything that has a name: data sets, backbones, and what comes later."""

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from stiffnet.errors import UnknownNameError

T = TypeVar("T")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """What a table knows about one name."""

    name: str
    value: T
    summary: str


class Registry(Generic[T]):
    """Ordered table of entries with a helpful look-up.

    >>> Registry("fruit", [Entry("apple", 1, "red"), Entry("pear", 2, "green")])["aple"]
    Traceback (most recent call last):
    stiffnet.errors.UnknownNameError: There is no fruit called 'aple'. Did you mean 'apple'?
    """

    def __init__(self, kind: str, entries: Iterable[Entry[T]]) -> None:
        self._kind = kind
        self._entries: dict[str, Entry[T]] = {}
        for entry in entries:
            if entry.name in self._entries:
                raise ValueError(f"Two {kind}s are called {entry.name!r}; rename one of them.")
            self._entries[entry.name] = entry

    def __getitem__(self, name: str) -> Entry[T]:
        check_known(self._kind, name, self._entries)
        return self._entries[name]

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)


def check_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Raise an UnknownNameError with the nearest names if `name` is not among the known ones."""
    names = list(known)
    if name not in names:
        raise UnknownNameError(unknown(kind, str(name), names))


def unknown(kind: str, name: str, known: Iterable[str], *, listing: str = "") -> str:
    """Sentence for a name that is not in `known`: the nearest names, or where to see them all."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3)
    if close:
        guess = f"Did you mean {' or '.join(repr(match) for match in close)}?"
    elif listing:
        guess = f"{listing} lists them all."
    else:
        guess = f"Known: {', '.join(names)}."
    return f"There is no {kind} called {name!r}. {guess}"
