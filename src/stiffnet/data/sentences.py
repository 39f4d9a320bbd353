"""A text file of sentences, one on each line."""

import os
from pathlib import Path

from stiffnet.errors import DataError


def read_sentences(file: str | os.PathLike[str], limit: int | None = None) -> list[str]:
    """Read the lines of a text file that are not empty.

    Args:
        file: UTF-8 text.
        limit: Take this many, evenly chosen; None takes all.

    Raises:
        DataError: If there is no such file, or no sentence in it.
    """
    path = Path(file)
    if not path.is_file():
        raise DataError(f"{path} is not a file. Give a text file with one sentence on each line.")
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").split("\n")]
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 text (byte {error.start}). Give a text file with one sentence on "
            "each line."
        ) from error
    found = [line for line in lines if line]
    if not found:
        raise DataError(f"{path} has no sentence in it. Write one on each line.")
    if limit is None or limit >= len(found):
        return found
    return [found[i * len(found) // limit] for i in range(limit)]
