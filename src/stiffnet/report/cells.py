"""Tables from rows of numbers: each column says its heading and how it writes its cells."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from stiffnet.report.blocks import Cell, Column, Row, Table
from stiffnet.report.text import clean, count, finite, fixed, number

Record = dict[str, Any]
Field = tuple[Column, Callable[[Record], Cell]]


def table(
    name: str,
    caption: str,
    records: Iterable[Record],
    fields: Sequence[Field],
    *,
    quiet: Callable[[Record], bool] = lambda row: False,
    marked: Callable[[Record], bool] = lambda row: False,
    **options: Any,
) -> Table:
    """Return a table with one row a record, and one column a field."""
    lines = [
        Row([cell(row) for _, cell in fields], quiet=quiet(row), marked=marked(row))
        for row in records
    ]
    return Table(name, caption, [column for column, _ in fields], lines, **options)


def sheet(
    caption: str, heads: Sequence[str], lines: Iterable[Sequence[str]], name: str = "forms"
) -> Table:
    """Return a small table of texts that is open and stays as it is; its first column is names."""
    columns = [Column(head, numeric=i > 0) for i, head in enumerate(heads)]
    rows = [Row([Cell(text) for text in line]) for line in lines]
    return Table(name, caption, columns, rows, sheet=True)


def words(
    heading: str,
    key: str,
    hint: str = "",
    *,
    write: Callable[[Any], str] = clean,
    longest: int = 120,
    place: str = "",
) -> Field:
    """A column of words; a user's are cleaned and shortened.

    Words lead to the section that the row names under the key `place`, if any.
    """
    if write is clean:
        write = partial(clean, longest=longest)

    def cell(row: Record) -> Cell:
        return Cell(write(row[key]), place=row[place] if place else "")

    return Column(heading, numeric=False, hint=hint), cell


def numbers(
    heading: str,
    key: str,
    hint: str = "",
    *,
    write: Callable[[Any], str] = number,
    places: int | None = None,
    longest: float | None = None,
) -> Field:
    """A column of numbers, written so or with as many decimals; with bars up to the longest."""
    if places is not None:
        write = partial(fixed, decimals=places)

    def cell(row: Record) -> Cell:
        known = finite(row[key])
        bar = round(max(known, 0.0) / longest, 3) if longest and known is not None else None
        return Cell(write(row[key]), known, bar)

    return Column(heading, hint=hint), cell


def coefficients(places: int) -> list[Field]:
    """Columns of correlations, each with its p-value, and that corrected for their number."""
    fields = []
    for name in ("Pearson", "Spearman", "Kendall"):
        key, corrected = name.lower(), "the same, corrected for the number of steps"
        fields += [
            numbers(name, key, places=places),
            numbers("p", f"{key}_p", f"p-value of {name}'s coefficient", write=p_value),
            numbers("Holm", f"{key}_holm", corrected, write=p_value),
        ]
    return fields


def whole(value: Any) -> str:
    """Write a whole number; what is none is written as it is."""
    return clean(value, longest=30) if finite(value) is None else count(value)


def p_value(value: Any) -> str:
    """Write a p-value; a tiny one is only said to be so."""
    known = finite(value)
    return "< 0.0001" if known is not None and known < 1e-4 else number(value, 2)


def yes_or_no(value: Any) -> str:
    """Write an answer."""
    return "yes" if value else "no"


def remark(value: Any) -> str:
    """Write a remark; most rows have none."""
    return clean(value, longest=600) if isinstance(value, str) else ""
