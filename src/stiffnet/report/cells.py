"""Tables from rows of numbers: each column says its heading and how it writes its cell."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from stiffnet.report.blocks import Cell, Column, Row, Table
from stiffnet.report.text import clean, count, finite, fixed, number, percent, shape

Record = dict[str, Any]
Field = tuple[Column, Callable[[Record], Cell]]


def table(
    name: str,
    caption: str,
    records: Iterable[Record],
    fields: Sequence[Field],
    *,
    note: str = "",
    opened: bool = False,
    quiet: Callable[[Record], bool] = lambda row: False,
    marked: Callable[[Record], bool] = lambda row: False,
) -> Table:
    """Return a table with one row a record, and one column a field."""
    lines = tuple(
        Row(tuple(cell(row) for _, cell in fields), quiet=quiet(row), marked=marked(row))
        for row in records
    )
    return Table(name, caption, tuple(column for column, _ in fields), lines, note, opened)


def words(heading: str, key: str, *, hint: str = "", longest: int = 120) -> Field:
    """A column of a user's words."""

    def cell(row: Record) -> Cell:
        missing = row[key] is None or row[key] != row[key]
        return Cell("" if missing else clean(row[key], longest=longest))

    return Column(heading, numeric=False, hint=hint), cell


def yes_or_no(heading: str, key: str, hint: str) -> Field:
    """A column of answers."""
    return Column(heading, numeric=False, hint=hint), lambda row: Cell("yes" if row[key] else "no")


def state(heading: str = "State", key: str = "shape") -> Field:
    """A column of shapes of a state."""
    column = Column(heading, numeric=False, hint="shape of the state")
    return column, lambda row: Cell(shape(row[key]))


def decimals(
    heading: str, key: str, places: int, *, longest: float | None = None, hint: str = ""
) -> Field:
    """A column of numbers with as many decimals each, and bars where the longest is given."""

    def cell(row: Record) -> Cell:
        known = finite(row[key])
        bar = round(max(known, 0.0) / longest, 3) if longest and known is not None else None
        return Cell(fixed(known, places), known, bar)

    return Column(heading, hint=hint), cell


def digits(heading: str, key: str, hint: str = "") -> Field:
    """A column of numbers with three significant digits each."""
    return Column(heading, hint=hint), lambda row: Cell(number(row[key]), finite(row[key]))


def share(heading: str, key: str, hint: str = "") -> Field:
    """A column of shares of one, in percent."""
    return Column(heading, hint=hint), lambda row: Cell(percent(row[key]), finite(row[key]))


def whole(heading: str, key: str, hint: str = "") -> Field:
    """A column of whole numbers; what is none is written as it is."""

    def cell(row: Record) -> Cell:
        known = finite(row[key])
        return Cell(clean(row[key], longest=30) if known is None else count(known), known)

    return Column(heading, hint=hint), cell


def p_value(heading: str, key: str, hint: str) -> Field:
    """A column of p-values."""

    def cell(row: Record) -> Cell:
        known = finite(row[key])
        tiny = known is not None and known < 1e-4
        return Cell("< 0.0001" if tiny else number(known, 2), known)

    return Column(heading, hint=hint), cell
