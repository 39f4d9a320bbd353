"""What the papers print: one table of numbers for each of their tables, as we transcribed it."""

from collections.abc import Mapping
from functools import cache
from importlib import resources

import pandas as pd

from stiffnet.errors import UnknownNameError
from stiffnet.registry import unknown

PAPERS = {
    "stepnet": "Understanding Self-attention Mechanism via Dynamical System Perspective",
    "blocks": "Block-level stiffness analysis of residual networks",
    "asr": "ASR: Attention-alike Structural Re-parameterization",
}
"""Titles, by the first word of a study's name."""


def published(table: str) -> pd.DataFrame:
    """Return a table of a paper, such as ``"asr_table1"``.

    Percentages are in percent, millions in millions; a cell that is empty there is missing here.
    ``tables/README.md`` beside the files says which cells were reconstructed.

    Raises:
        UnknownNameError: If there is no such table.

    >>> published("asr_table1").loc[0, ["attention", "dataset"]].tolist()
    ['none', 'CIFAR100']
    """
    return _read(table).copy()


def printed(table: str, column: str, keys: Mapping[str, str | float]) -> float:
    """Return the one number of a column that these keys select.

    Raises:
        UnknownNameError: If there is no such table.
        ValueError: If the keys select no row or several, or the cell is empty.

    >>> printed("asr_table1", "fps", {"attention": "SE", "dataset": "STL10"})
    173.0
    """
    frame = _read(table)
    for key, value in keys.items():
        frame = frame[frame[key] == value]
    if len(frame) != 1 or frame[column].isna().any():
        raise ValueError(
            f"{dict(keys)} selects {len(frame)} rows of {table}, not one that has {column!r}."
        )
    return float(frame[column].iloc[0])


@cache
def _read(table: str) -> pd.DataFrame:
    folder = resources.files(__package__).joinpath("tables")
    names = sorted(file.name[:-4] for file in folder.iterdir() if file.name.endswith(".csv"))
    if table not in names:
        raise UnknownNameError(unknown("published table", table, names))
    with folder.joinpath(f"{table}.csv").open(encoding="utf-8") as stream:
        return pd.read_csv(stream, keep_default_na=False, na_values=[""])
