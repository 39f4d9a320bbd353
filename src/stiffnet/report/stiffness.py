"""What a page and a terminal show of measured networks."""

from collections.abc import Sequence

from markupsafe import Markup
from rich.console import Group, RenderableType

from stiffnet.report import stiffness_findings as found, stiffness_plots as plots, surfaces
from stiffnet.report.blocks import Block, Box, Facts, Findings, Part, Plot, Section, Tiles, Words
from stiffnet.report.stiffness_tables import steps_lines, summary, tables, totals_table
from stiffnet.report.surfaces import caption_samples
from stiffnet.report.text import clean, cleaned, count, finite, images, number, percent, with_error
from stiffnet.results.stiffness import StiffnessReport
from stiffnet.results.view import StiffnessView


def parts(given: Sequence[tuple[StiffnessReport | StiffnessView, str]]) -> list[Part]:
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
        Part(
            kind="stiffness",
            lead=lead,
            articles=[(title, _said(view, several=several)) for title, view in titled],
            sections=_sections(views),
            tables=[(title, tables(view)) for title, view in titled],
            reading=["stiffness"],
            facts=[(title, Facts(cleaned(view.facts))) for title, view in titled],
        )
    ]


def terminal(report: StiffnessReport) -> RenderableType:
    """Return what a terminal shows of a report."""
    view = report.view()
    return Group(summary(view), steps_lines(view))


def _said(view: StiffnessView, *, several: bool) -> list[Block]:
    return [
        *([] if several else [Words(found.headline(view), "lede")]),
        Tiles(_tiles(view)),
        Findings(found.findings(view)),
        *(Words(clean(text, longest=2000), "warning") for text in view.notes),
    ]


def _tiles(view: StiffnessView) -> list[tuple[str, str, str]]:
    """Return the numbers under the headline: name, value, what it is made of."""
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
    counted = [view for view in views if view.steps["counted"].any()]
    noun = _noun(views)
    share = (
        f"Share of the {noun} with at least one such step. The volume under this surface is TNS."
    )
    part = f"Share of the steps of each of the {noun} that are such steps, on average."
    delta = [surfaces.delta_figure(view, extent) for view in counted]
    proportion = [surfaces.proportion_figure(view, extent, top) for view in counted]
    boxes = []
    for name, symbol, question, figures in (
        ("delta", "δ(M₁, M₂)", share, delta),
        ("proportion", "p̂(M₁, M₂)", part, proportion),
    ):
        label = f"{symbol} over both thresholds"
        drawn = [
            Plot(f"{name}-{i}", figure, label, _title([view], views), caption_samples(view))
            for i, (view, figure) in enumerate(zip(counted, figures, strict=True))
        ]
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
    label = "NSI by step for the stiffest and calmest inputs"
    drawn = [
        Plot(
            f"extremes-{i}",
            plots.extremes_figure(view),
            label,
            _title([view], views),
            caption_samples(view),
            switch=True,
        )
        for i, view in enumerate(view for view in views if view.stiffest or view.calmest)
    ]
    return Section("extremes", "The stiffest and the calmest inputs", "Inputs", text, drawn)


def _noun(views: Sequence[StiffnessView]) -> str:
    nouns = {view.noun for view in views}
    return nouns.pop() if len(nouns) == 1 else "samples"


def _title(views: Sequence[StiffnessView], among: Sequence[object]) -> str:
    """Name networks above their chart, where it is not the only one."""
    named = " and ".join(clean(view.title, longest=80) for view in views)
    return named if len(among) > 1 else ""
