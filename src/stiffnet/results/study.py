"""What studies find: a file for each row, and the rows of a study with its verdict."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from stiffnet.results.record import Record

Values = Mapping[str, Any]
"""Numbers, texts and lists of them, by name."""


@dataclass(frozen=True)
class StudyRow(Record):
    """What one job of a study gave, and everything that determines it; or why it failed."""

    KIND = "study row"
    AGAIN = "Run the study again"

    address: str
    """Name of the row, made of everything that determines it."""
    kind: str
    settings: Values
    needs: tuple[str, ...] = ()
    """Addresses of the rows that it was made from."""
    values: Values = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    """What made it: versions, command, data, how long it took."""
    error: str = ""
    """Why there are no values; nothing where there are."""


@dataclass(frozen=True)
class Line:
    """One row of a study for one seed."""

    group: str
    row: str
    seed: int
    address: str
    values: Values
    """Nothing where the row failed or was not computed."""
    error: str = ""


@dataclass(frozen=True)
class Comparison:
    """One comparison, how it was judged, and the numbers that this rests on."""

    group: str
    sentence: str
    """What was claimed of the two."""
    metric: str
    """What was compared; nothing where it is the order of the rows by two metrics."""
    verdict: str
    why: str
    seeds: int
    estimate: float | None = None
    """Mean difference over seeds, or the rank correlation."""
    low: float | None = None
    high: float | None = None
    p: float | None = None
    published: float | None = None
    """The published difference, where both sides were published."""
    remark: str = ""
    """The part of `why` that the numbers do not show; nothing where they show all."""


Printed = tuple[tuple[str, str, float], ...]
"""Group, row and value of everything that was published."""


@dataclass(frozen=True)
class Shown:
    """A column of a table that shows several values of each row; see `studies.study.Column`."""

    metric: str
    figure: str
    how: str = ""
    sheet: str = ""
    p: str = ""
    published: Printed = ()

    @property
    def title(self) -> str:
        """What it is, and in which way it was computed."""
        return f"{self.figure}, {self.how}" if self.how else self.figure

    def printed(self, group: str) -> dict[str, float]:
        """Return what was published of each row of a group."""
        return {row: value for title, row, value in self.published if title == group}


@dataclass(frozen=True)
class StudyReport(Record):
    """A claim of a paper, what was published, what was measured, and the verdict."""

    KIND = "study"
    AGAIN = "Run the study again"

    name: str
    paper: str
    """Its title."""
    locator: str
    claim: str
    scale: str
    metric: str
    """Which value of a row is compared, where a comparison says nothing else."""
    unit: str
    """What a table calls it."""
    lines: tuple[Line, ...]
    published: Printed
    comparisons: tuple[Comparison, ...]
    verdict: str
    why: str
    columns: tuple[Shown, ...] = ()
    """What a table shows of every row, where that is more than the metric."""
    exact: bool = False
    """All of it is counted, and depends on no seed."""
    picture: Mapping[str, str] | None = None
    """What else to draw; see `studies.study.Picture`."""
    notes: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Its name."""
        return self.name

    @property
    def failed(self) -> tuple[Line, ...]:
        """Rows that have no values."""
        return tuple(line for line in self.lines if line.error)

    @property
    def groups(self) -> list[str]:
        """Settings in which its rows were computed."""
        return list(dict.fromkeys(line.group for line in self.lines))

    @property
    def rows(self) -> Iterator[tuple[str, str, list[Line]]]:
        """Yield each group and row with its lines, one a seed."""
        gathered: dict[tuple[str, str], list[Line]] = {}
        for line in self.lines:
            gathered.setdefault((line.group, line.row), []).append(line)
        for (group, row), lines in gathered.items():
            yield group, row, lines

    def to_frame(self) -> pd.DataFrame:
        """One row a group, row and seed; a column for each value that is a single number."""
        return pd.DataFrame(
            [
                {
                    "group": line.group,
                    "row": line.row,
                    "seed": line.seed,
                    **{k: v for k, v in line.values.items() if isinstance(v, (int, float))},
                    "error": line.error,
                }
                for line in self.lines
            ]
        )

    def summary(self) -> pd.DataFrame:
        """One row a group and row: mean and deviation of the metric, and what was published."""
        known = {(group, row): value for group, row, value in self.published}
        lines = []
        for group, row, given in self.rows:
            found = [line.values.get(self.metric) for line in given]
            values = pd.Series([each for each in found if each is not None], dtype=float)
            lines.append(
                {
                    "group": group,
                    "row": row,
                    "seeds": len(values),
                    "mean": values.mean(),
                    "std": values.std(),
                    "published": known.get((group, row), float("nan")),
                }
            )
        return pd.DataFrame(lines)
