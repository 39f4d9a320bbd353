"""What a study is: a claim of a paper, rows to compute, what was published, how it is judged.

All of it is plain data. `jobs/study.py` computes the rows, and nothing here knows how.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stiffnet.studies.published import printed

Settings = Mapping[str, Any]
Side = str | float
"""A row by its label, or a number."""
SCALES = ("demo", "small", "paper")


@dataclass(frozen=True)
class Job:
    """Something to compute: what kind, how, and which other jobs it needs the results of."""

    kind: str
    settings: Settings = field(default_factory=dict)
    needs: tuple["Job", ...] = ()

    def at(
        self,
        defaults: Mapping[str, Settings],
        seed: int,
        stand_ins: Mapping[str, Settings] | None = None,
    ) -> "Job":
        """Return it with what its kind has by default where it says nothing, and with a seed.

        What stands for its network, if anything does, wins over its own settings.
        """
        settings = {**defaults.get(self.kind, {}), **self.settings, "seed": seed}
        settings |= (stand_ins or {}).get(settings.get("model", ""), {})
        needs = tuple(job.at(defaults, seed, stand_ins) for job in self.needs)
        return Job(self.kind, settings, needs)

    def all(self) -> Iterator["Job"]:
        """Yield what it needs, and what that needs, before it, and itself last."""
        for job in self.needs:
            yield from job.all()
        yield self


@dataclass(frozen=True)
class Judge:
    """How a claim is judged: by the seeds of two rows, by the order of all, or by equality."""

    how: Literal["higher", "within", "ranks", "printed"]
    sides: tuple[Side, Side]
    margin: float = 0.0
    """Of ``within``: how far the two may be apart. Of ``ranks``: 1 for rising, -1 for falling."""
    metric: str = ""
    """What is compared; the study's metric where nothing is said."""
    said: str = ""
    """The comparison in words, where the names of the metric and the rows do not say it well."""
    premise: "Judge | None" = None
    """What has to hold of the same rows; where it does not, nothing is claimed of them."""

    @property
    def rows(self) -> tuple[str, ...]:
        """Labels of the rows that it compares."""
        pairs = self.how in ("higher", "within")
        return tuple(side for side in self.sides if isinstance(side, str) and pairs)


def higher(
    row: Side, than: Side, metric: str = "", said: str = "", premise: Judge | None = None
) -> Judge:
    """One row has a higher value than another, or than a number."""
    return Judge("higher", (row, than), metric=metric, said=said, premise=premise)


def equal_within(row: Side, other: Side, margin: float, metric: str = "") -> Judge:
    """Two rows differ by less than a margin."""
    return Judge("within", (row, other), margin, metric)


def rank_correlation(x: str, y: str, sign: int = 1) -> Judge:
    """Over all rows, one metric rises with another (or falls, sign -1)."""
    return Judge("ranks", (x, y), sign)


def as_printed(metric: str, said: str) -> Judge:
    """A count, which depends on no seed, is in every row the one that was published."""
    return Judge("printed", ("every row", "printed"), metric=metric, said=said)


@dataclass(frozen=True)
class Group:
    """One setting in which all rows are computed and compared."""

    title: str
    settings: Mapping[str, Settings] = field(default_factory=dict)
    """By the kind of a job; they win over the scale's."""
    published: Mapping[str, str | float] | None = field(default_factory=dict)
    """Which part of the published table stands beside it; None where nothing of it can."""
    rows: tuple[str, ...] = ()
    """Labels of the rows that are computed in it; all of them where nothing is said."""


@dataclass(frozen=True)
class Scale:
    """How large a study is run."""

    groups: tuple[Group, ...]
    defaults: Mapping[str, Settings]
    """For each kind of job."""
    minutes: Mapping[str, float] = field(default_factory=dict)
    """That a job of a kind takes on one core, for an estimate; nothing where that is not known."""
    seeds: int = 3
    leave_out: tuple[str, ...] = ()
    """Labels of rows that are not computed at this scale."""
    stand_ins: Mapping[str, Settings] = field(default_factory=dict)
    """By a network that rows name: the settings with what stands for it at this scale."""


@dataclass(frozen=True)
class Published:
    """Where the published numbers of a study's rows are."""

    table: str
    column: str
    rows: Mapping[str, Mapping[str, str | float]]
    """By the label of a row: the keys that select it, beside those of the group."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """By the label of a row: its column, where that is another one."""

    def value(self, row: str, group: Group) -> float | None:
        """Return what was published of a row; None where nothing was."""
        if row not in self.rows or group.published is None:
            return None
        column = self.columns.get(row, self.column)
        return printed(self.table, column, {**self.rows[row], **group.published})


def by_attention(table: str, modules: Mapping[str, str], column: str = "top1") -> Published:
    """Select the rows of a published table by what it calls their modules."""
    return Published(table, column, {row: {"attention": name} for row, name in modules.items()})


@dataclass(frozen=True)
class Column:
    """A value of every row, for a table that shows several."""

    metric: str
    figure: str
    """What it is: columns of one figure stand together, behind what was published of it."""
    how: str = ""
    """In which way it was computed, where there are several."""
    sheet: str = ""
    """Heading of the table that it is in, where there are several."""
    p: str = ""
    """The metric with its p-value, if it has one."""
    published: Published | None = None


@dataclass(frozen=True)
class Picture:
    """What the page draws beside the comparisons.

    ``curves``: a list of each row. ``points``: two metrics of all rows against each other.
    ``profile``: the columns of the sheet `y`, along the rows whose labels begin with `x`.
    ``plane``: the lists `x` and `y` of each way of computing, as points of the complex plane.
    ``surfaces``: the share of images by two thresholds, a surface a row.
    ``maps``: the mean of the maps `y` of each row over its seeds, rows of numbers over the image.
    ``gallery``: `x` is the list of pictures that a row was given, `y` that of those it made, and
    `y_title` the picture that they should be like; all are JPEG files in base64.
    """

    kind: Literal["curves", "points", "profile", "plane", "surfaces", "maps", "gallery"]
    x: str
    y: str
    heading: str
    x_title: str
    y_title: str


@dataclass(frozen=True, kw_only=True)
class Study:
    """A question that a paper answers."""

    name: str
    locator: str
    """Where the paper answers it: ``"Table 1"``."""
    claim: str
    rows: Mapping[str, Job]
    metric: str = "accuracy"
    """What is compared; nothing where every comparison names its own, all of one unit."""
    unit: str = "accuracy, %"
    """What the metric is called in a table, with its unit."""
    judges: tuple[Judge, ...]
    scales: Mapping[str, Scale]
    published: Published | None = None
    columns: tuple[Column, ...] = ()
    """What a table shows of every row, where that is more than the metric."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """By the label of a row: which part of its job's values it is, where a job fills several."""
    picture: Picture | None = None
    notes: tuple[str, ...] = ()
    """What a reader has to know: our readings, inconsistencies of the paper."""

    @property
    def paper(self) -> str:
        """Key of the paper, as in `PAPERS`."""
        return self.name.partition("-")[0]

    @property
    def exact(self) -> bool:
        """Whether all of it is counted, so that nothing depends on a seed."""
        return all(judge.how == "printed" for judge in self.judges)

    def labels(self, scale: str) -> list[str]:
        """Labels of the rows that are run at a scale; none where there is no such scale."""
        jobs = self.jobs(scale, 1) if scale in self.scales else ()
        return list(dict.fromkeys(label for _, label, _, _ in jobs))

    def left_out(self, scale: str) -> list[str]:
        """Labels of the rows that the published setting has, and this scale has not."""
        run = self.labels(scale)
        return [label for label in self.labels("paper") if label not in run]

    def values(self, row: str, computed: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what a row is of that which its job gave."""
        found: Mapping[str, Any] = computed
        if row in self.parts:
            found = computed.get(self.parts[row], {})
        return found

    def jobs(self, scale: str, seeds: int) -> Iterator[tuple[Group, str, int, Job]]:
        """Yield every row: its group, its label, its seed and what computes it."""
        chosen = self.scales[scale]
        for group in chosen.groups:
            kinds = {*chosen.defaults, *group.settings}
            defaults = {
                kind: {**chosen.defaults.get(kind, {}), **group.settings.get(kind, {})}
                for kind in kinds
            }
            for label, job in self.rows.items():
                if label in (group.rows or self.rows) and label not in chosen.leave_out:
                    for seed in range(1 if self.exact else seeds):
                        yield group, label, seed, job.at(defaults, seed, chosen.stand_ins)
