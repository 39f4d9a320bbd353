"""A file that says what a network's outputs stand for, in the forms that people have."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stiffnet.data.classes import WORDNET, ClassNames
from stiffnet.errors import DataError
from stiffnet.files import read_file

FORMS = (
    "Give one class name per line in the order of the network's outputs, or JSON: a list of names, "
    '{"0": NAME, ...} or {NAME: 0, ...}.'
)


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
