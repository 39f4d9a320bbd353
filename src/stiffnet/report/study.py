"""What a page and a terminal show of studies."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from stiffnet.report import blocks, cells, study_plots as plots
from stiffnet.report.study_gallery import gallery
from stiffnet.report.study_plots import numbers_of
from stiffnet.report.terminal import sheet_lines, spoken
from stiffnet.report.text import (
    MISSING,
    capital,
    clean,
    cleaned,
    count,
    finite,
    fixed,
    number,
    plus_minus,
    rows as frame_rows,
    strong,
    told_apart,
)
from stiffnet.results.study import Comparison, Shown, StudyReport
from stiffnet.words import listed

Given = Sequence[tuple[StudyReport, str]]
LINKED = 8  # studies that the top of a page leads to; the table leads to more
ORDER = ("held", "refuted", "undecided")
ONLY_DEMO = (
    "At scale demo, networks are small and trained for seconds. Verdicts are about these networks, "
    "and show how a study runs; the scales small and paper are there to answer it."
)
SMALL = 0.05  # a p-value
_CODE = re.compile("`([^`]+)`")  # in notes, which are declared as plain text
_MEANS = "Means over seeds; bars: standard deviations."
_PICTURES: dict[str, tuple[Callable[[StudyReport], Iterable[Any]], str, str]] = {
    "curves": (plots.curves_figure, _MEANS, ""),
    "points": (plots.points_figure, "A point is a seed.", ""),
    "profile": (plots.profile_figures, _MEANS, ""),
    "plane": (plots.plane_figures, "Of the first seed.", "side"),
    "surfaces": (plots.surface_figures, "Means over seeds.", "side"),
    "maps": (plots.map_figures, "Means over seeds.", "maps"),
}
"""What draws a picture, what is said below it, and the look of the box it is in, if in one."""


def parts(given: Given) -> list[blocks.Part]:
    """Return what studies put on a page: all answers at the top, then a section for each."""
    reports = [report for report, _ in given]
    scales = [clean(report.scale, longest=40) for report in reports]
    titles = [clean(title or report.name, longest=120) for report, title in given]
    names = told_apart(titles, scales)
    named = list(zip(reports, names, strict=True))
    lead: list[blocks.Block] = [blocks.Words(answer(reports), "lede")]
    if all(report.scale == "demo" for report in reports):
        lead.append(blocks.Words(ONLY_DEMO, "note"))
    if len(reports) > 1:
        lead.append(_answers(reports, names))
    return [
        blocks.Part(
            kind="study",
            lead=lead,
            sections=[
                _section(report, name, _place(i), linked=len(reports) <= LINKED)
                for i, (report, name) in enumerate(named)
            ],
            tables=[(name, _tables(report)) for report, name in named],
            reading=["study"],
            facts=[(name, blocks.Facts(cleaned(report.facts))) for report, name in named],
        )
    ]


def terminal(report: StudyReport) -> RenderableType:
    """Return what a terminal shows of a study."""
    said = f"{report.name}, {report.locator}: {report.claim} ({report.unit})"
    title = Text(clean(said), "bold")
    failed = [
        Text(f"Failed: {clean(line.row)}, seed {line.seed}: {clean(line.error)}")
        for line in report.failed
    ]
    return Group(
        title,
        *(sheet_lines(table, light=True) for _, table in _sheets(report)),
        spoken(verdict(report)),
        *failed,
    )


def answer(reports: Sequence[StudyReport]) -> str:
    """Say what was asked and what came out, in a sentence."""
    if len(reports) == 1:
        return f"{clean(reports[0].claim)} {verdict(reports[0])}"
    counts = Counter(report.verdict for report in reports)
    told = [strong(f"{count(counts[word])} {word}") for word in ORDER if counts[word]]
    failed = sum(len(report.failed) for report in reports)
    lost = f" {'One row' if failed == 1 else f'{count(failed)} rows'} failed." if failed else ""
    of = (
        f"{_many('claim', (each.name for each in reports))} of "
        f"{_many('paper', (each.paper for each in reports))}"
    )
    if len({report.name for report in reports}) < len(reports):  # at two scales, or in two places
        of = f"{count(len(reports))} verdicts on {of}"
    return f"Of {of}, run again here: {listed(told)}.{lost}"


def _many(noun: str, names: Iterable[str]) -> str:
    many = len(set(names))
    return f"a {noun}" if many == 1 else f"{count(many)} {noun}s"


def verdict(report: StudyReport) -> str:
    """Say what became of the claim, and why."""
    return f"{strong(clean(report.verdict, longest=40).capitalize())}. {clean(report.why)}"


def _answers(reports: Sequence[StudyReport], names: Sequence[str]) -> blocks.Table:
    records = [
        vars(report) | {"study": name, "place": _place(i)}
        for i, (report, name) in enumerate(zip(reports, names, strict=True))
    ]
    fields = [
        cells.words("Study", "study", place="place"),
        cells.words("Verdict", "verdict"),
        cells.words("Claim", "claim", longest=400),
    ]
    if len({report.scale for report in reports}) > 1:
        fields.insert(2, cells.words("Scale", "scale"))
    return cells.table(
        "studies", "All studies", records, fields, opened=True,
        marked=lambda row: row["verdict"] == "held",
    )  # fmt: skip


def _place(number: int) -> str:
    return f"study-{number}"


def _section(report: StudyReport, name: str, place: str, *, linked: bool) -> blocks.Section:
    shown: list[blocks.Block] = [blocks.Words(verdict(report), "verdict")]
    shown.append(blocks.Words(_measured(report), "note"))
    for title, table in _sheets(report):
        shown += [blocks.Title(title), table] if title else [table]
    differences = [
        each
        for each in report.comparisons
        if report.metric in ("", each.metric) and finite(each.estimate) is not None
    ]
    if differences:
        figure = plots.differences_figure(differences, clean(report.unit))
        note = "Dots: means over seeds; bars: 95 % intervals."
        if any(finite(each.published) is not None for each in differences):
            note += " Diamonds: what was published."
        label = "Differences with their intervals"
        shown.append(blocks.Plot(f"{place}-differences", figure, label, title=label, note=note))
    if report.picture is not None:
        shown += _picture(report, report.picture, f"{place}-picture")
    shown.append(_comparisons(report))
    if report.failed:
        shown.append(_failures(report))
    if report.notes:
        shown += [blocks.Words(_CODE.sub(r"“\1”", clean(note)), "note") for note in report.notes]
    return blocks.Section(
        place,
        f"{name}: {clean(report.locator)}",
        name if linked else "",
        f"{clean(report.claim)} ({clean(report.paper)}, {clean(report.locator)}; run at scale "
        f"{clean(report.scale)}.)",
        shown,
    )


def _measured(report: StudyReport) -> str:
    """Say what the numbers of the tables are, and of what the published ones are not."""
    of = f" ({clean(report.groups[0], longest=80)})" if len(report.groups) == 1 else ""
    told = f"{clean(report.unit)}{of}: mean ± standard deviation over seeds."
    if report.exact:
        told = f"{clean(report.unit)}{of}, which depend on no seed."
    elif report.columns:
        told = f"mean ± standard deviation over seeds{of}."
    published = report.published or any(column.published for column in report.columns)
    if published and not report.exact and report.scale != "paper":
        told += (
            " The published numbers are of the paper's own networks and data: compare differences, "
            "not levels."
        )
    return capital(told)


def _picture(report: StudyReport, about: Mapping[str, str], place: str) -> list[blocks.Block]:
    heading = clean(about["heading"])
    if about["kind"] == "gallery":
        return gallery(report, heading)
    figures, note, look = _PICTURES[about["kind"]]
    drawn: list[blocks.Block] = []
    for i, (name, figure) in enumerate(figures(report)):
        title, end = (heading, "") if name is None else (f"{heading}: {name}", f"-{i}")
        drawn.append(blocks.Plot(f"{place}{end}", figure, title, title=title, note=note))
    return [blocks.Box(look, drawn)] if look else drawn


def _sheets(report: StudyReport) -> list[tuple[str, blocks.Table]]:
    """What was published and measured, side by side, for each group."""
    several = len(report.groups) > 1
    if not report.columns:
        frames = report.summary().groupby("group", sort=False)
        return [
            (clean(group) if several else "", _sheet(report, str(group), rows))
            for group, rows in frames
        ]
    found = []
    for group in report.groups:
        for sheet in dict.fromkeys(column.sheet for column in report.columns):
            title = clean(", ".join(filter(None, [sheet, group if several else ""])))
            own = [column for column in report.columns if column.sheet == sheet]
            found.append((title, _columns_sheet(report, group, title, own)))
    return found


def _sheet(report: StudyReport, group: str, rows: Any) -> blocks.Table:
    heads = [clean(group, longest=60), "measured", "seeds"]
    known = bool(rows["published"].notna().any())
    if known:
        heads.append("published")
    lines = []
    for row in rows.to_dict("records"):
        name, measured = clean(row["row"], longest=60), plus_minus(row["mean"], row["std"], 2)
        printed = [fixed(row["published"], 2)] if known else []
        lines.append([name, measured, count(row["seeds"]), *printed])
    return cells.sheet(f"Measured and published, {clean(group)}", heads, lines)


def _columns_sheet(
    report: StudyReport, group: str, title: str, columns: Sequence[Shown]
) -> blocks.Table:
    """A row for each row and a column for each value, with what was published before it."""
    first = {column.figure: column for column in reversed(columns)}  # says what was published
    heads = [clean(group, longest=60)]
    for column in columns:
        if column is first[column.figure] and column.published:
            heads.append(f"{clean(column.figure)}, published")
        heads.append(clean(column.title))
    made = []
    for other, row, lines in report.rows:
        if other != group:
            continue
        texts, empty = [clean(row, longest=60)], True
        for column in columns:
            values = numbers_of(lines, column.metric)
            empty = empty and not values
            whole = _whole(report, column)
            if column is first[column.figure] and column.published:
                texts.append(_written(column.printed(group).get(row), whole=whole))
            texts.append(_told(values, numbers_of(lines, column.p), whole=whole))
        if not empty or any(row in column.printed(group) for column in columns):
            made.append(texts)
    return cells.sheet(title or clean(group), heads, made, name="forms several")


def _whole(report: StudyReport, column: Shown) -> bool:
    """Whether all of a column is counts, what was published too."""
    found = [each.values.get(column.metric) for each in report.lines]
    printed = all(float(value).is_integer() for _, _, value in column.published)
    return printed and all(value is None or isinstance(value, int) for value in found)


def _told(values: Sequence[float], p_values: Sequence[float], *, whole: bool) -> str:
    """Write a mean over seeds, its spread, and in how many of them it is clearly not zero."""
    if not values:
        return MISSING
    text = _written(float(np.mean(values)), whole=whole)
    if len(values) > 1 and np.ptp(values) > 0:
        text += f" ± {_written(float(np.std(values, ddof=1)), whole=whole)}"
    if p_values:
        text += f" ({sum(p <= SMALL for p in p_values)}/{len(p_values)})"
    return text


def _written(value: float | None, *, whole: bool) -> str:
    return count(value) if whole else fixed(value, 2)


def _comparisons(report: StudyReport) -> blocks.Table:
    records = [
        vars(made)
        | {"interval": _interval(made), "why": made.why if made.low is None else made.remark}
        for made in report.comparisons
    ]
    every = {
        "sentence": cells.words("Claimed", "sentence", longest=160),
        "group": cells.words("Setting", "group"),
        "verdict": cells.words("Verdict", "verdict"),
        "estimate": cells.numbers("Difference", "estimate", "mean over seeds, or rank correlation"),
        "interval": cells.words("95 % interval", "interval"),
        "published": cells.numbers("Published", "published", "the published difference"),
        "p": cells.numbers("p", "p", write=cells.p_value),
        "why": cells.words("Why", "why", write=cells.remark),
    }
    said = {key for record in records for key, value in record.items() if value not in ("", None)}
    if len({made.group for made in report.comparisons}) < 2:
        said -= {"group"}
    fields = [field for key, field in every.items() if key in said | {"sentence", "verdict"}]
    note = "Each by a two-sided test at 5 %; see how to read this, below."
    if report.exact:
        note = "Counts are equal to what is printed or not; one run decides."
    return cells.table("comparisons", "Comparisons", records, fields, note=note, opened=True)


def _failures(report: StudyReport) -> blocks.Table:
    fields = [
        cells.words("Row", "row"),
        cells.numbers("Seed", "seed", write=cells.whole),
        cells.words("Setting", "group"),
        cells.words("Why it failed", "error", write=cells.remark),
    ]
    records = map(vars, report.failed)
    return cells.table("left", "Rows that failed", records, fields, opened=True)


def _tables(report: StudyReport) -> list[blocks.Table]:
    """Every row and seed, with all of its numbers."""
    frame = report.to_frame()
    values = [str(column) for column in frame if column not in ("group", "row", "seed", "error")]
    fields = [
        cells.words("Row", "row"),
        cells.words("Setting", "group"),
        cells.numbers("Seed", "seed", write=cells.whole),
        *(cells.numbers(clean(each, longest=40).replace("_", " "), each) for each in values),
    ]
    return [cells.table("rows", "Rows", frame_rows(frame), fields)]


def _interval(made: Comparison) -> str:
    if made.low is None or made.high is None:
        return ""
    return f"{number(made.low)} to {number(made.high)}"
