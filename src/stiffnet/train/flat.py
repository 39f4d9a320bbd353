"""Flat TOML files of settings: ``key = value`` lines and nothing deeper.

Lines that are comments are taken out before anything else, and so that none of them can be part of
a text, no text may go over several lines. What the parser sees is then short, whoever wrote it.
"""

import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from stiffnet.errors import RecipeError, StorageError

SUFFIX = ".toml"
LARGEST_FILE = 2**20  # bytes, with comments
LARGEST_TEXT = 2**14  # characters, without them
MOST_LINES = 10_000
LONGEST_LINE = 3_000  # characters; tomllib takes quadratic time and memory for a dotted key

COMMENT = re.compile(r"^[ \t]*(#.*)?$", re.MULTILINE)  # on a line of its own, or a blank line
WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)")
DECIMAL = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
MOST_DIGITS = 600  # of a whole number; Python may be told to read no more than 640

Line = tuple[str, object, int]  # key, value, number of the line


def flat_lines(path: str | os.PathLike[str]) -> Iterator[Line]:
    """Yield key, value and line number of each setting, in the order of the file.

    Values are what TOML has, tables and dates among them, for the caller to refuse.

    Raises:
        RecipeError: If the file is not a flat TOML file of a sensible size.
        StorageError: If it cannot be read.
    """
    file = Path(path)
    if file.suffix.lower() != SUFFIX:
        raise RecipeError(
            f"{file} is not a TOML file, and recipes are. Write a line `key = value` for each "
            f"setting, in a file whose name ends in {SUFFIX}."
        )
    text = COMMENT.sub("", _text(file))
    _check_length(text, file)
    if several := re.search("'''|\"\"\"", text):
        number = text.count("\n", 0, several.start()) + 1
        _refuse(file, number, "text over several lines is not read. Write it on one, in quotes.")
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


def word(text: str) -> str | int | float | bool:
    """Read a bare word of a command line: a boolean, a number, or else the text itself.

    >>> [word(text) for text in ("1e-3", "no", "017", "81", "true")]
    [0.001, 'no', '017', 81, True]
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if WHOLE.fullmatch(text) and len(text) <= MOST_DIGITS:
        return int(text)
    return float(text) if DECIMAL.fullmatch(text) else text


def written(value: object) -> str:
    """Write a value as TOML.

    >>> [written(value) for value in (True, 1e-3, (81, 122), "text")]
    ['true', '0.001', '[81, 122]', '"text"']
    """
    if isinstance(value, tuple):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("'''", "''\\u0027")
    return str(value).lower() if isinstance(value, bool) else repr(value)


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
    """See to it that the parser cannot be kept busy for long."""
    total = 0
    for number, line in enumerate(text.split("\n"), 1):
        total += len(line)
        if len(line) > LONGEST_LINE or total > LARGEST_TEXT or number > MOST_LINES:
            _refuse(file, number, "this is longer than any recipe. Remove what is not a setting.")


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


def _refuse(file: Path, number: int, sentence: str) -> NoReturn:
    raise RecipeError(f"{file}, line {number}: {sentence}")
