"""Which output of a network stands for which class of the data: matched by name, never by rank.

The names of the outputs may come from a file, in the forms that people have.
"""

import json
import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stiffnet.errors import DataError
from stiffnet.files import read_file
from stiffnet.words import few

WORDNET = re.compile(r"(n\d{8})(?!\d)")  # a WordNet number, alone or with words behind it
SEPARATING = "PZC"  # of Unicode's categories: punctuation, spaces and control characters
FORMS = (
    "Give one class name per line in the order of the network's outputs, or JSON: a list of names, "
    '{"0": NAME, ...} or {NAME: 0, ...}.'
)


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


def read_classes(path: str | os.PathLike[str]) -> ClassNames:
    """Read the classes of a network, in the order of its outputs.

    Text has one name a line; after a comma come synonyms, as in ``tench, Tinca tinca``, and a
    WordNet number may stand before them. JSON is a list of names, a map from numbers to names
    or from names to numbers (``class_to_idx``), or a Hugging Face configuration with an
    ``id2label``; the name may be a list of names, as in Keras's ``imagenet_class_index.json``.

    Raises:
        StorageError: If the file cannot be read.
        DataError: If it does not name every output once.
    """
    file = Path(path)
    try:
        text = read_file(file, "Check its name and its permissions.").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8 text, so no classes were read. {FORMS}") from error
    rows = _from_json(file, text) if text.lstrip()[:1] in ("[", "{") else _from_lines(file, text)
    if not rows:
        raise DataError(f"{file} names no class. {FORMS}")
    return ClassNames(
        names=tuple(names[0] for names in rows),
        others=tuple(tuple(names[1:]) for names in rows),
        synonyms=tuple(_synonyms(names) for names in rows),
    )


def _from_lines(file: Path, text: str) -> list[list[str]]:
    lines = [line.strip() for line in text.rstrip().splitlines()]
    if "" in lines:
        raise DataError(f"Line {lines.index('') + 1} of {file} is empty. {FORMS}")
    return [[line, *WORDNET.findall(line)[:1]] for line in lines]


def _from_json(file: Path, text: str) -> list[list[str]]:
    try:
        content = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} is not JSON that can be read: {error}. {FORMS}") from error
    if isinstance(content, Mapping):
        content = content.get("id2label", content)
    if isinstance(content, Mapping):
        content = _in_order(file, content)
    if not isinstance(content, list):
        raise DataError(f"{file} holds neither a list nor a map of classes. {FORMS}")
    rows = [[row] if isinstance(row, str) else row for row in content]
    for number, row in enumerate(rows):
        if not isinstance(row, list) or not row or not all(isinstance(x, str) and x for x in row):
            raise DataError(f"Class {number} in {file} has no name. {FORMS}")
    return rows


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _in_order(file: Path, content: Mapping[str, Any]) -> list[Any]:
    """Return the names of a map by their numbers, which must be 0, 1, 2, ... without a gap."""
    by_name = all(type(value) is int for value in content.values())
    pairs = [(value, key) if by_name else (_number(key), value) for key, value in content.items()]
    in_order: dict[int, Any] = dict(pairs)
    if in_order.keys() != set(range(len(pairs))):
        raise DataError(f"{file} does not number its {len(pairs)} classes from 0 on. {FORMS}")
    return [in_order[number] for number in range(len(pairs))]


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else -1


def _synonyms(names: list[str]) -> tuple[str, ...]:
    """Return what stands between commas, without a WordNet number before it."""
    parts = [part for name in names for part in WORDNET.sub("", name).split(",")]
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
