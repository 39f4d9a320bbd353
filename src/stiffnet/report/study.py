"""What a page and a terminal show of studies."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from stiffnet.report import blocks, cells
from stiffnet.report.study_columns import column_sheets, plane_figures, profile_figures
from stiffnet.report.study_gallery import gallery
from stiffnet.report.study_plots import (
    curves_figure,
    differences_figure,
    map_figures,
    points_figure,
    surface_figures,
)
from stiffnet.report.terminal import sheet_lines, spoken
from stiffnet.report.text import (
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
from stiffnet.results.study import Comparison, StudyReport
from stiffnet.words import listed

Given = Sequence[tuple[StudyReport, str]]
LINKED = 8  # studies that the top of a page leads to; the table leads to more
ORDER = ("held", "refuted", "undecided")
ONLY_DEMO = (
    "At scale demo, networks are small and trained for seconds. Verdicts are about these networks, "
    "and show how a study runs; the scales small and paper are there to answer it."
)
_CODE = re.compile("`([^`]+)`")  # in notes, which are declared as plain text
_FIGURES = {"curves": curves_figure, "points": points_figure}
_NOTES = {
    "curves": "Means over seeds; bars: standard deviations.",
    "profile": "Means over seeds; bars: standard deviations.",
    "points": "A point is a seed.",
    "maps": "Means over seeds.",
    "surfaces": "Means over seeds.",
    "plane": "Of the first seed.",
}
_SEVERAL = {
    "profile": profile_figures,
    "plane": plane_figures,
    "surfaces": surface_figures,
    "maps": map_figures,
}


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
        figure = differences_figure(differences, clean(report.unit))
        note = "Dots: means over seeds; bars: 95 % intervals."
        if any(finite(each.published) is not None for each in differences):
            note += " Diamonds: what was published."
        label = "Differences with their intervals"
        shown.append(blocks.Plot(f"{place}-differences", figure, label, title=label, note=note))
    if report.picture is not None:
        shown += _picture(report, f"{place}-picture")
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
    groups = list(dict.fromkeys(line.group for line in report.lines))
    of = f" ({clean(groups[0], longest=80)})" if len(groups) == 1 else ""
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


def _picture(report: StudyReport, place: str) -> list[blocks.Block]:
    assert report.picture is not None
    heading, note = clean(report.picture["heading"]), _NOTES.get(report.picture["kind"], "")
    if report.picture["kind"] in _SEVERAL:
        several = _SEVERAL[report.picture["kind"]](report)
        named = [(f"{heading}: {name}", figure) for name, figure in several]
        drawn: list[blocks.Block] = [
            blocks.Plot(f"{place}-{i}", figure, title, title=title, note=note)
            for i, (title, figure) in enumerate(named)
        ]
        look = "maps" if report.picture["kind"] == "maps" else "side"
        return drawn if report.picture["kind"] == "profile" else [blocks.Box(look, drawn)]
    if report.picture["kind"] == "gallery":
        return gallery(report, heading)
    figure = _FIGURES[report.picture["kind"]](report)
    return [blocks.Plot(place, figure, heading, title=heading, note=note)]


def _sheets(report: StudyReport) -> list[tuple[str, blocks.Table]]:
    """What was published and measured, side by side, for each group."""
    if report.columns:
        return column_sheets(report)
    frame = report.summary()
    several = frame["group"].nunique() > 1
    return [
        (clean(group) if several else "", _sheet(report, str(group), rows))
        for group, rows in frame.groupby("group", sort=False)
    ]


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
