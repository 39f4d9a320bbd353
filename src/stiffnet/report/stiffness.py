"""What a page and a terminal show of measured networks."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from stiffnet.report import (
    blocks,
    cells,
    stiffness_findings as found,
    stiffness_plots as plots,
    surfaces,
)
from stiffnet.report.blocks import Block, Box, Plot, Section, Table, Words
from stiffnet.report.terminal import Lines, told
from stiffnet.report.text import (
    clean,
    cleaned,
    count,
    decimals_for,
    finite,
    fixed,
    images,
    number,
    percent,
    rows,
    shape,
    strong,
    with_error,
)
from stiffnet.results.stiffness import StiffnessReport
from stiffnet.results.view import StiffnessView

_BAR, _BAR_BESIDE_INCREMENT = 14, 10  # cells of a terminal
_NAME = 28  # cells; a longer name is shortened in its middle


def parts(given: Sequence[tuple[StiffnessReport | StiffnessView, str]]) -> list[blocks.Part]:
    """Return what all measured networks put on a page; with the same steps they are overlaid."""
    views = [
        each.view(title) if isinstance(each, StiffnessReport) else each for each, title in given
    ]
    titled = [(clean(view.title, longest=200), view) for view in views]
    several = len(views) > 1
    lead: list[Block] = [Words(sentence, "lede") for sentence in found.comparison(views)]
    if len(views) > found.SEVERAL:
        lead.append(totals_table(views))
    return [
        blocks.Part(
            kind="stiffness",
            lead=lead,
            articles=[(title, _said(view, several=several)) for title, view in titled],
            sections=_sections(views),
            tables=[(title, tables(view)) for title, view in titled],
            reading=["stiffness"],
            facts=[(title, blocks.Facts(cleaned(view.facts))) for title, view in titled],
        )
    ]


def terminal(report: StiffnessReport) -> RenderableType:
    """Return what a terminal shows of a report."""
    view = report.view()
    return Group(summary(view), steps_lines(view))


def _said(view: StiffnessView, *, several: bool) -> list[Block]:
    return [
        *([] if several else [Words(found.headline(view), "lede")]),
        blocks.Tiles(_tiles(view)),
        blocks.Findings(found.findings(view)),
        *(Words(clean(text, longest=2000), "warning") for text in view.notes),
    ]


def _tiles(view: StiffnessView) -> list[tuple[str, str, str]]:
    counted, stages = int(view.steps["counted"].sum()), len(view.stages)
    made_of = "no stage has two counted steps"
    if view.tns_steps:
        made_of = f"mean over {images(view.samples, view.noun)}, from {found.basis(view)}"
    tiles = [("Total neural stiffness", with_error(view.tns, view.tns_se), made_of)]
    if view.steps["gated"].any() and finite(view.increment_total) is not None:
        total = with_error(view.increment_total, view.increment_total_se)
        tiles.append(("Total of increments", total, "TNS with the gates in; folding keeps it"))
    within = f"{counted} counted, in {stages} stage{'' if stages == 1 else 's'}"
    tiles.append(("Residual steps", count(len(view.steps)), within))
    for row in found.stiffest_steps(view, most=1):
        name = "Stiffest counted step" if counted else "Stiffest step"
        at = f"at {clean(row['step'], longest=40)}"
        tiles.append((name, f"NSI {number(row['nsi_mean'])}", at))
    if finite(view.accuracy) is not None:
        among = "" if view.top5 is None else f"; top-5: {percent(view.top5)}"
        tiles.append(("Accuracy", percent(view.accuracy), f"on the same {view.noun}{among}"))
    return tiles


def _sections(views: Sequence[StiffnessView]) -> list[Section]:
    """Return the charts: NSI by step, both surfaces, and the inputs at either end."""
    groups = [list(views)] if plots.share_steps(views) else [[view] for view in views]
    text = (
        "The index of a step (NSI) is the size of what its branch would add, divided by the size "
        f"of the state it is added to. The line is the median over the {_noun(views)}, the dark "
        "band their middle half, the light band 90 % of them."
    )
    if not found.all_counted(views):
        text += " Hollow points are steps that TNS leaves out: the first of each stage."
    if len(views) > 1:
        text += " Click a name in the legend to hide or show it."
    drawn = [
        Plot(f"nsi-{i}", plots.nsi_figure(group), "NSI by step", _title(group, groups), switch=True)
        for i, group in enumerate(groups)
    ]
    sections = [Section("nsi", "How large each step is, next to the state", "Steps", text, drawn)]
    if any(view.steps["counted"].any() for view in views):
        sections.append(_surfaces(views))
    if any(view.stiffest or view.calmest for view in views):
        sections.append(_extremes(views))
    return sections


def _surfaces(views: Sequence[StiffnessView]) -> Section:
    extent, top = surfaces.surface_extent(views), surfaces.proportion_top(views)
    noun = _noun(views)
    share = (
        f"Share of the {noun} with at least one such step. The volume under this surface is TNS."
    )
    part = f"Share of the steps of each of the {noun} that are such steps, on average."
    deltas, proportions = [], []
    for i, view in enumerate(view for view in views if view.steps["counted"].any()):
        named = _title([view], views), surfaces.caption_samples(view)
        delta = surfaces.delta_figure(view, extent)
        deltas.append(Plot(f"delta-{i}", delta, "δ(M₁, M₂) over both thresholds", *named))
        proportion = surfaces.proportion_figure(view, extent, top)
        label = "p̂(M₁, M₂) over both thresholds"
        proportions.append(Plot(f"proportion-{i}", proportion, label, *named))
    boxes = []
    for symbol, question, drawn in (
        ("δ(M₁, M₂)", share, deltas), ("p̂(M₁, M₂)", part, proportions),
    ):  # fmt: skip
        asked = Words(Markup("<b>{}</b> {}").format(symbol, question), "question")
        boxes.append(Box("group", [asked, Box("side" if len(views) > 1 else "", drawn)]))
    text = (
        "A step stands out when its NSI is at least 1 + M₁ times the mean of its stage (to the "
        "right: stands out more from its neighbours) and at least M₂ (upwards: is larger)."
    )
    heading = "How often a step stands out, and how many do"
    return Section("surfaces", heading, "Thresholds", text, [Box("pair", boxes)])


def _extremes(views: Sequence[StiffnessView]) -> Section:
    text = (
        "NSI against depth for the inputs with the largest and the smallest TNS; the dotted line "
        "is the median of all. The inputs were chosen by their TNS, so the groups differ by "
        "construction: the chart shows at which steps."
    )
    label, drawn = "NSI by step for the stiffest and calmest inputs", []
    for i, view in enumerate(view for view in views if view.stiffest or view.calmest):
        figure, named = plots.extremes_figure(view), _title([view], views)
        note = surfaces.caption_samples(view)
        drawn.append(Plot(f"extremes-{i}", figure, label, named, note, switch=True))
    return Section("extremes", "The stiffest and the calmest inputs", "Inputs", text, drawn)


def _noun(views: Sequence[StiffnessView]) -> str:
    nouns = {view.noun for view in views}
    return nouns.pop() if len(nouns) == 1 else "samples"


def _title(views: Sequence[StiffnessView], among: Sequence[object]) -> str:
    """Name networks above their chart, where it is not the only one."""
    named = " and ".join(clean(view.title, longest=80) for view in views)
    return named if len(among) > 1 else ""


def tables(view: StiffnessView) -> list[Table]:
    """Return the tables of the page, as far as there is something in them."""
    found = [steps_table(view), stages_table(view)]
    if view.labels is not None:
        found.append(labels_table(view))
    if view.relations is not None:
        found.append(relations_table(view))
    return found


def totals_table(views: Sequence[StiffnessView]) -> Table:
    """One row a network, the stiffest first."""
    records = [
        {
            "network": view.title,
            "tns": view.tns if view.tns_steps else None,
            "tns_se": view.tns_se if view.tns_steps else None,
            "increments": view.increment_total,
            "accuracy": None if finite(view.accuracy) is None else 100 * (view.accuracy or 0.0),
            "samples": view.samples,
        }
        for view in views
    ]
    records.sort(key=lambda row: -(finite(row["tns"]) or 0.0))
    longest, places = _scale(records, "tns")
    fields = [
        cells.words("Network", "network", longest=80),
        cells.numbers("TNS", "tns", "total neural stiffness", places=places, longest=longest),
        cells.numbers("±", "tns_se", "standard error", places=places),
        cells.numbers("Increments", "increments", "the total with the gates in", places=places),
        cells.numbers("Accuracy, %", "accuracy", places=2),
        cells.numbers("Samples", "samples", write=cells.whole),
    ]
    return cells.table("totals", "Total stiffness of all networks", records, fields, opened=True)


def steps_table(view: StiffnessView) -> Table:
    """One row a step, with everything that is known of it."""
    records = [row | {"position": i} for i, row in enumerate(rows(view.steps), start=1)]
    stiff = {row["step"] for row in found.stiffest_steps(view)}
    longest, places = _scale(records, "nsi_mean")
    mean = f"mean over the {view.noun}"
    quantiles = {"Median": "median", "5 %": "q05", "25 %": "q25", "75 %": "q75", "95 %": "q95"}
    increment = cells.numbers("Increment", "increment_mean", mean, places=places)
    fields = [
        cells.words("Step", "step"),
        cells.numbers("#", "position", "position in the order of execution", write=cells.whole),
        cells.numbers("NSI", "nsi_mean", mean, places=places, longest=longest),
        cells.numbers("sd", "nsi_std", f"standard deviation over the {view.noun}", places=places),
        *(cells.numbers(name, f"nsi_{key}", places=places) for name, key in quantiles.items()),
        *([increment] if found.increment_differs(view) else []),
        cells.numbers("Stage", "stage", write=cells.whole),
        cells.words("State", "shape", "shape of the state", write=shape),
        cells.words("Identity", "identity", "is the shortcut an identity?", write=cells.yes_or_no),
        cells.words("Counted", "counted", "does it enter TNS?", write=cells.yes_or_no),
    ]
    return cells.table(
        "steps", "Steps", records, fields, opened=True,
        note="A heading sorts by its column. Bold: the stiffest counted steps. Grey: not counted "
        "in TNS.",
        quiet=lambda row: not row["counted"],
        marked=lambda row: bool(row["counted"]) and row["step"] in stiff,
    )  # fmt: skip


def stages_table(view: StiffnessView) -> Table:
    """One row a stage."""
    records = rows(view.stages)
    longest, places = _scale(records, "nsi_mean")
    own = decimals_for(view.stages["tns"])
    fields = [
        cells.numbers("Stage", "stage", write=cells.whole),
        cells.numbers(
            "NSI", "nsi_mean", f"mean over the {view.noun}", places=places, longest=longest
        ),
        cells.numbers("TNS", "tns", "of this stage alone", places=own),
        cells.numbers("± se", "tns_se", "standard error", places=own),
        cells.words("State", "shape", "shape of the state", write=shape),
        cells.numbers("Steps", "steps", write=cells.whole),
        cells.numbers("Counted", "counted", "steps that enter TNS", write=cells.whole),
    ]
    return cells.table("stages", "Stages", records, fields, opened=True)


def labels_table(view: StiffnessView) -> Table:
    """One row a label."""
    records = rows(view.labels)
    longest, places = _scale(records, "tns")
    fields = [
        cells.words("Label", "label"),
        cells.numbers(view.noun.capitalize(), "samples", write=cells.whole),
        cells.numbers("TNS", "tns", places=places, longest=longest),
        cells.numbers("± se", "tns_se", "standard error", places=places),
        cells.numbers("Accuracy", "accuracy", write=percent),
    ]
    return cells.table("labels", "Labels", records, fields)


def relations_table(view: StiffnessView) -> Table:
    """One row a correlation."""
    fields = [
        cells.words("Step", "step"),
        cells.words("With", "target", longest=60),
        *cells.coefficients(places=3),
        cells.numbers(view.noun.capitalize(), "samples", write=cells.whole),
        cells.words("Note", "note", write=cells.remark),
    ]
    note = (
        f"Correlation of a step's NSI with another value of the same {view.noun[:-1]}. Among many "
        "steps some p is small by chance: “Holm” is p corrected for the number of steps."
    )
    return cells.table("relations", "Relations", rows(view.relations), fields, note=note)


def _scale(records: Sequence[dict[str, Any]], key: str) -> tuple[float, int]:
    """Return the largest number of a column, and the decimals that all of them are written with."""
    longest = max((finite(row[key]) or 0.0 for row in records), default=0.0)
    return longest, decimals_for([longest])


def summary(view: StiffnessView) -> RenderableType:
    """Return the total and what it says, for `rich` to print."""
    title, beside = clean(view.title, longest=120), ""
    if finite(view.accuracy) is not None:
        among = "" if view.top5 is None else f" (top-1), {percent(view.top5)} (top-5)"
        beside = f", accuracy {percent(view.accuracy)}{among}"
    notes = [f"{strong('Note: ')}{clean(text, longest=600)}" for text in view.notes]
    return told(title, found.headline(view), [*found.findings(view), *notes], beside=beside)


def steps_lines(view: StiffnessView) -> RichTable:
    """Return one row a step, by stage, with NSI as a bar; `▲` marks the stiffest counted steps."""
    records = rows(view.steps)
    attention = found.increment_differs(view)
    width = _BAR_BESIDE_INCREMENT if attention else _BAR
    longest, places = _scale(records, "nsi_mean")
    stiff = {row["step"] for row in found.stiffest_steps(view)}
    headings = ("mean", "median", "5–95 %", *(["incr."] if attention else []))
    names = [row["step"] for row in records]
    lines = Lines("NSI", headings, steps=names, name=_NAME, bar=width, longest=longest)
    for order, (stage, members) in enumerate(groupby(records, key=lambda row: row["stage"])):
        if order:
            lines.table.add_section()
        for place, row in enumerate(members):
            if place == 0:
                label = f"stage {clean(stage, longest=12)} · {shape(row['shape'])}"
                named = Text(label, style="italic", overflow="ellipsis", no_wrap=True)
                lines.table.add_row("", named)
            numbers = [
                fixed(row["nsi_mean"], places),
                fixed(row["nsi_median"], places),
                f"{number(row['nsi_q05'], 2)}–{number(row['nsi_q95'], 2)}",
                *([number(row["increment_mean"], 2)] if attention else []),
            ]
            counts = bool(row["counted"])
            marked = counts and row["step"] in stiff
            lines.add(row["step"], row["nsi_mean"], numbers, marked=marked, quiet=not counts)
    return lines.table
