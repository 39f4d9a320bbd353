"""Which output of a network stands for which class of the data: matched by name, never by rank."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stiffnet.words import few

WORDNET = re.compile(r"(n\d{8})(?!\d)")  # a WordNet number, alone or with words behind it
SEPARATING = "PZC"  # of Unicode's categories: punctuation, spaces and control characters


@dataclass(frozen=True)
class ClassNames:
    """What the outputs of a network stand for, in their order."""

    names: tuple[str, ...]
    others: tuple[tuple[str, ...], ...] = ()
    """Further names of each output that are as good as the first, such as a WordNet number."""
    synonyms: tuple[tuple[str, ...], ...] = ()
    """Names that count only where they are no other output's first or further name."""

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Mismatch:
    """Why the classes of the data are not outputs of a network, as a clause."""

    why: str


def match_classes(
    labels: Sequence[str], known: ClassNames, *, numbers: bool = False
) -> tuple[int, ...] | Mismatch:
    """Find the output of a network that stands for each class of the data.

    A class is found by its exact name, or else by a name that differs in capitals, spaces and
    punctuation only. A folder that starts with a WordNet number, as in ``n01440764_tench``, goes
    by that. A name that several outputs bear is ambiguous, unless the other classes of the data
    leave one of them.

    With `numbers`, classes that are all whole numbers, and none of them a name, are taken for the
    numbers of outputs, from 0. The outputs are all different, and may be some of the network's.

    Example:
        >>> match_classes(["dog", "black_swan"], ClassNames(("cat", "Black swan", "dog")))
        (2, 1)
        >>> match_classes(["bird"], ClassNames(("cat", "dog"))).why
        "the data's class 'bird' is not among the network's (cat, dog)"
    """
    tables = _tables(known)
    found = {label: _candidates(label, tables) for label in labels}
    if numbers and not any(found.values()) and all(re.fullmatch("[0-9]+", x) for x in labels):
        found = {x: {int(x)} if int(x) < len(known) else set() for x in labels}
    lost = [label for label in labels if not found[label]]
    if lost:
        which = f"class {lost[0]!r} is" if len(lost) == 1 else f"classes {few(lost)} are"
        return Mismatch(f"the data's {which} not among the network's ({few(known.names)})")
    chosen = _settled(found, known)
    unclear = [label for label in labels if label not in chosen]
    if unclear:
        return Mismatch(
            f"{unclear[0]!r} is the name of several of the network's classes (numbers "
            f"{', '.join(map(str, sorted(found[unclear[0]])))})"
        )
    claimed: dict[int, str] = {}
    for label in labels:
        first = claimed.setdefault(chosen[label], label)
        if first != label:
            name = known.names[chosen[label]]
            return Mismatch(f"{first!r} and {label!r} are both the network's class {name!r}")
    return tuple(chosen[label] for label in labels)


def displaced(names: Sequence[str], known: ClassNames) -> tuple[int, int] | None:
    """Find a name that stands at another place than the output that is known to bear it.

    Names that the outputs do not bear, or that several bear, say nothing.

    >>> displaced(["cat", "hound"], ClassNames(("cat", "dog")))
    >>> displaced(["dog", "cat"], ClassNames(("cat", "dog")))
    (0, 1)
    """
    tables = _tables(known)
    for place, name in enumerate(names):
        bearers = _candidates(name, tables)
        if len(bearers) == 1 and place not in bearers:
            return place, next(iter(bearers))
    return None


def composed(name: str) -> str:
    r"""Return a name in the Unicode form NFC: names that look the same are then mostly equal.

    >>> composed("cafe\N{COMBINING ACUTE ACCENT}") == "caf\N{LATIN SMALL LETTER E WITH ACUTE}"
    True
    """
    return unicodedata.normalize("NFC", name)


def simplified(name: str) -> str:
    """Return a name without capitals and punctuation, to compare it with another.

    Vowel signs, as of Hindi and Thai, symbols and the sign of a number are no punctuation.

    >>> simplified("Jack-o'-lantern"), simplified("great_white  shark"), simplified("C++ (-1)")
    ('jack o lantern', 'great white shark', 'c++ −1')
    """
    folded = unicodedata.normalize("NFKC", name).casefold()
    signed = re.sub(r"(?<!\w)-(?=\d)", "\N{MINUS SIGN}", folded)
    words = "".join(" " if unicodedata.category(c)[0] in SEPARATING else c for c in signed)
    return " ".join(words.split()) or folded


def _tables(known: ClassNames) -> list[Mapping[str, set[int]]]:
    """Outputs by their names, a table for each weight of names; the first is of exact names.

    Where outputs have further names, a first name is one of several and has no precedence.
    """
    first = list(enumerate(known.names))
    others = [(number, name) for number, names in enumerate(known.others) for name in names]
    synonyms = [(number, name) for number, names in enumerate(known.synonyms) for name in names]
    simple = [[(n, simplified(x)) for n, x in level] for level in (first + others, synonyms)]
    tables: list[Mapping[str, set[int]]] = []
    for level in ([] if others else first, *simple):
        table: dict[str, set[int]] = defaultdict(set)
        for number, name in level:
            table[name].add(number)
        tables.append(table)
    return tables


def _candidates(label: str, tables: Sequence[Mapping[str, set[int]]]) -> set[int]:
    """Return the outputs of a name, on the first level that knows it."""
    wordnet = WORDNET.match(label)
    spellings = [[label]] + [[simplified(label)] + ([wordnet[1]] if wordnet else [])] * 2
    for table, names in zip(tables, spellings, strict=True):
        for name in names:
            if table.get(name):
                return table[name]
    return set()


def _settled(found: Mapping[str, set[int]], known: ClassNames) -> dict[str, int]:
    """Choose one output for each class; of an ambiguous name, the one that no other class takes."""
    chosen = {label: next(iter(several)) for label, several in found.items() if len(several) == 1}
    taken = set(chosen.values())
    for label, several in found.items():
        if label in chosen:
            continue
        left = several - taken
        exact = {number for number in several if known.names[number] == label}
        spelt = all(known.names[number] in found for number in left)
        if len(left) == 1 or (len(exact) == 1 and exact <= left and spelt):
            (chosen[label],) = left if len(left) == 1 else exact
    return chosen
