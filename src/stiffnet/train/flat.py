"""Flat files of settings: TOML or YAML, ``key: value`` lines and nothing deeper.

Of YAML only the events of the parser are used, so no tag, anchor or alias is ever followed. Its
words are those of YAML 1.2: ``1e-3`` is a number, ``no`` and ``on`` are not booleans. Numbers with
leading zeros, which the two versions read differently, are text.

Lines that are comments are taken out before anything else, and so that none of them can be part of
a text, no text may go over several lines. What a parser sees is then short, whoever wrote it.
"""

import os
import re
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import yaml

from stiffnet.errors import RecipeError, StorageError

SUFFIXES = (".toml", ".yaml", ".yml")
LARGEST_FILE = 2**20  # bytes, with comments
LARGEST_TEXT = 2**14  # characters, without them
MOST_LINES = 10_000
LONGEST_LINE = 3_000  # characters; tomllib takes quadratic time and memory for a dotted key

COMMENT = re.compile(r"^[ \t]*(#.*)?$", re.MULTILINE)  # on a line of its own, or a blank line
BOOLEANS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
NOTHING = ("", "~", "null", "Null", "NULL")
WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)")
DECIMAL = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
MOST_DIGITS = 600  # of a whole number; Python may be told to read no more than 640

Line = tuple[str, object, int]  # key, value, number of the line


def flat_lines(path: str | os.PathLike[str]) -> Iterator[Line]:
    """Yield key, value and line number of each setting, in the order of the file.

    Values are text, numbers, booleans or lists of them; of TOML also tables and dates, for the
    caller to refuse. Reading stops where the caller does.

    Raises:
        RecipeError: If the file is not a flat file of a sensible size.
        StorageError: If it cannot be read.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise RecipeError(
            f"{file} is no recipe file. Give one whose name ends in {', '.join(SUFFIXES)}."
        )
    text = COMMENT.sub("", _text(file))
    _check_length(text, file)
    yield from _toml_lines(text, file) if suffix == ".toml" else _yaml_lines(text, file)


def word(text: str) -> str | int | float | bool:
    """Read a bare word: a boolean, a number, or else the text itself.

    >>> [word(text) for text in ("1e-3", "no", "017", "81", "true")]
    [0.001, 'no', '017', 81, True]
    """
    if text in BOOLEANS:
        return BOOLEANS[text]
    if WHOLE.fullmatch(text) and len(text) <= MOST_DIGITS:
        return int(text)
    return float(text) if DECIMAL.fullmatch(text) else text


def _text(file: Path) -> str:
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):
            raise OSError(0, "it is not a file")
        with open(file, "rb") as stream:
            content = stream.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:  # a ValueError where the path cannot be one
        reason = getattr(error, "strerror", None) or error
        raise StorageError(f"{file} could not be read: {reason}. Check the path.") from error
    if len(content) > LARGEST_FILE:
        raise RecipeError(f"{file} is larger than 1 MB, which no recipe is. Give another file.")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise RecipeError(
            f"{file} is not UTF-8 text: its byte {error.start:,} cannot be read. Save it as UTF-8."
        ) from error


def _check_length(text: str, file: Path) -> None:
    """See to it that no parser can be kept busy for long."""
    total = 0
    for number, line in enumerate(text.split("\n"), 1):
        total += len(line)
        if len(line) > LONGEST_LINE or total > LARGEST_TEXT or number > MOST_LINES:
            _refuse(file, number, "this is longer than any recipe. Remove what is no setting.")


def _toml_lines(text: str, file: Path) -> Iterator[Line]:
    if several := re.search("'''|\"\"\"", text):
        _refuse_long(file, text.count("\n", 0, several.start()) + 1)
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        _refuse_toml(text, file, error)
    numbers: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if start := re.match(r"""[\s\["']*([\w-]+)""", line):
            numbers.setdefault(start[1], number)
    for key, value in content.items():
        yield key, value, numbers.get(key, 1)


def _refuse_toml(text: str, file: Path, error: Exception) -> NoReturn:
    problem, number = str(error), text.count("\n") + 1
    if isinstance(error, RecursionError):
        problem, number = "lists within lists", 1
    elif located := re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", problem, re.DOTALL):
        problem, number = located[1], int(located[2])
    if problem.startswith("Cannot overwrite"):
        key = text.split("\n")[number - 1].partition("=")[0].strip()
        _refuse(file, number, f"`{key[:80]}` is given twice. Keep one of the two.")
    _refuse(file, number, f"TOML cannot read this: {problem}. Write `key = value`, text in quotes.")


def _yaml_lines(text: str, file: Path) -> Iterator[Line]:
    try:
        yield from _pairs(yaml.parse(text, Loader=yaml.SafeLoader), file)
    except RecipeError:
        raise
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # `\U` may name no character
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).split("\n")[0]
        number = mark.line + 1 if mark else 1
        _refuse(file, number, f"YAML cannot read this: {problem}. Write `key: value`.")


def _pairs(events: Iterator[Any], file: Path) -> Iterator[Line]:
    documents, inside = 0, False
    for event in events:
        number = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                _refuse(file, number, "a second document begins. Keep one in each file.")
        elif isinstance(event, yaml.MappingStartEvent) and not inside:
            _check_bare(event, file)
            inside = True
        elif isinstance(event, yaml.NodeEvent):
            _check_bare(event, file)
            if not (inside and isinstance(event, yaml.ScalarEvent)):
                _refuse(file, number, "this is no setting. Write `key: value`.")
            yield event.value, _value(next(events), events, file), number


def _value(event: Any, events: Iterator[Any], file: Path) -> object:
    _check_bare(event, file)
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event, file)
    if not isinstance(event, yaml.SequenceStartEvent):
        _refuse_deep(event, file)
    row: list[object] = []
    for entry in events:
        if isinstance(entry, yaml.SequenceEndEvent):
            break
        _check_bare(entry, file)
        if not isinstance(entry, yaml.ScalarEvent):
            _refuse_deep(entry, file)
        row.append(_scalar(entry, file))
    return row


def _refuse_long(file: Path, number: int) -> NoReturn:
    _refuse(file, number, "text over several lines is not read. Write it on one line, in quotes.")


def _refuse_deep(event: Any, file: Path) -> NoReturn:
    _refuse(
        file,
        event.start_mark.line + 1,
        "this lies too deep. A value is a word or a list of words, such as [81, 122].",
    )


def _scalar(event: Any, file: Path) -> object:
    if event.start_mark.line != event.end_mark.line:
        _refuse_long(file, event.start_mark.line + 1)
    if event.style is not None:  # quoted
        return event.value
    return None if event.value in NOTHING else word(event.value)


def _check_bare(event: Any, file: Path) -> None:
    if event.anchor is not None:
        _refuse(
            file,
            event.start_mark.line + 1,
            "anchors (`&`) and aliases (`*`) are not read. Write the value itself.",
        )
    if getattr(event, "tag", None) is not None:
        _refuse(file, event.start_mark.line + 1, "tags (`!`) are not read. Write the value alone.")


def _refuse(file: Path, number: int, sentence: str) -> NoReturn:
    raise RecipeError(f"{file}, line {number}: {sentence}")
