"""What a page and a terminal show of measured networks."""

from collections.abc import Sequence

from markupsafe import Markup
from rich.console import Group, RenderableType

from stiffnet.report import stiffness_plots as plots, surfaces
from stiffnet.report.blocks import (
    Article,
    Block,
    Box,
    Facts,
    Findings,
    Part,
    Plot,
    Section,
    Tiles,
    Words,
)
from stiffnet.report.stiffness_findings import (
    all_counted,
    basis,
    comparison,
    findings,
    headline,
    stiffest_steps,
)
from stiffnet.report.stiffness_tables import steps_lines, summary, tables
from stiffnet.report.text import (
    clean,
    cleaned,
    count,
    finite,
    images,
    number,
    percent,
    with_error,
)
from stiffnet.results.stiffness import StiffnessReport
from stiffnet.results.view import StiffnessView

SURFACES = (
    ("delta", "δ(M₁, M₂)", "Images with at least one such step. The volume under this surface is "
     "TNS."),
    ("proportion", "p̂(M₁, M₂)", "Steps of an image that are such steps, on average."),
)  # fmt: skip


def parts(given: Sequence[tuple[StiffnessReport | StiffnessView, str]]) -> list[Part]:
    """Return what all measured networks put on a page; with the same steps they are overlaid."""
    views = [
        each.view(title) if isinstance(each, StiffnessReport) else each for each, title in given
    ]
    several = len(views) > 1
    titles = [clean(view.title, longest=200) for view in views]
    return [
        Part(
            kind="stiffness",
            lead=tuple(Words(sentence, "lede") for sentence in comparison(views)),
            articles=tuple(
                Article(title, _said(view, several=several))
                for title, view in zip(titles, views, strict=True)
            ),
            sections=tuple(_sections(views)),
            tables=tuple(
                (title, tuple(tables(view))) for title, view in zip(titles, views, strict=True)
            ),
            definitions=DEFINITIONS,
            facts=tuple(
                (title, Facts(cleaned(view.facts)))
                for title, view in zip(titles, views, strict=True)
            ),
        )
    ]


def terminal(report: StiffnessReport) -> RenderableType:
    """Return what a terminal shows of a report."""
    view = report.view()
    return Group(summary(view), steps_lines(view))


def _said(view: StiffnessView, *, several: bool) -> tuple[Block, ...]:
    return (
        *([] if several else [Words(headline(view), "lede")]),
        Tiles(tuple(_tiles(view))),
        Findings(tuple(findings(view))),
        *(Words(clean(text, longest=2000), "warning") for text in view.notes),
    )


def _tiles(view: StiffnessView) -> list[tuple[str, str, str]]:
    """Return the numbers under the headline: name, value, what it is made of."""
    counted = int(view.steps["counted"].sum())
    stages = len(view.stages)
    tiles = [
        (
            "Total neural stiffness",
            with_error(view.tns, view.tns_se),
            f"mean over {images(view.samples)}, from {basis(view)}"
            if view.tns_steps
            else "no stage has two counted steps",
        )
    ]
    if view.steps["gated"].any() and finite(view.increment_total) is not None:
        total = with_error(view.increment_total, view.increment_total_se)
        tiles.append(("Total of increments", total, "TNS with the gates in; folding keeps it"))
    within = f"{counted} counted, in {stages} stage{'' if stages == 1 else 's'}"
    tiles.append(("Residual steps", count(len(view.steps)), within))
    for row in stiffest_steps(view, most=1):
        name = "Stiffest counted step" if counted else "Stiffest step"
        at = f"at {clean(row['step'], longest=40)}"
        tiles.append((name, f"NSI {number(row['nsi_mean'])}", at))
    if finite(view.accuracy) is not None:
        tiles.append(("Accuracy", percent(view.accuracy), "on the same images"))
    return tiles


def _sections(views: Sequence[StiffnessView]) -> list[Section]:
    """Return the charts: NSI by step, both surfaces, and the inputs at either end."""
    several = len(views) > 1
    groups = [list(views)] if plots.share_steps(views) else [[view] for view in views]
    hollow = "" if all_counted(views) else (
        " Hollow points are steps that TNS leaves out: the first of each stage."
    )  # fmt: skip
    click = " Click a name in the legend to hide or show it." if several else ""
    sections = [
        Section(
            "nsi",
            "How large each step is, next to the state",
            "Steps",
            (
                Words(
                    "The index of a step (NSI) is the size of what its branch would add, divided "
                    "by the size of the state it is added to. The line is the median over the "
                    "images, the dark band their middle half, the light band 90 % of them."
                    f"{hollow}{click}"
                ),
                *(
                    Plot(
                        f"nsi-{i}",
                        plots.nsi_figure(group),
                        "NSI by step",
                        _titles(group) if len(groups) > 1 else "",
                        switch=True,
                    )
                    for i, group in enumerate(groups)
                ),
            ),
        )
    ]
    if counted := [view for view in views if view.steps["counted"].any()]:
        sections.append(_surfaces(views, counted))
    if curved := [view for view in views if view.stiffest or view.calmest]:
        sections.append(_extremes(curved, several=several))
    return sections


def _surfaces(views: Sequence[StiffnessView], counted: Sequence[StiffnessView]) -> Section:
    several = len(views) > 1
    extent, top = surfaces.surface_extent(views), surfaces.proportion_top(views)

    def drawn(name: str, label: str) -> Box:
        figures = (
            surfaces.delta_figure(view, extent=extent)
            if name == "delta"
            else surfaces.proportion_figure(view, extent=extent, top=top)
            for view in counted
        )
        return Box(
            "side" if several else "",
            tuple(
                Plot(
                    f"{name}-{i}",
                    figure,
                    f"{label} over both thresholds",
                    _titles([view]) if several else "",
                    surfaces.caption_samples(view),
                )
                for i, (view, figure) in enumerate(zip(counted, figures, strict=True))
            ),
        )

    question = Markup("<b>{}</b> {}")
    return Section(
        "surfaces",
        "How often a step stands out, and how many do",
        "Thresholds",
        (
            Words(
                "A step stands out when its NSI is at least 1 + M₁ times the mean of its stage (to "
                "the right: stands out more from its neighbours) and at least M₂ (upwards: is "
                "larger)."
            ),
            Box(
                "pair",
                tuple(
                    Box(
                        "group",
                        (Words(question.format(symbol, text), "question"), drawn(name, symbol)),
                    )
                    for name, symbol, text in SURFACES
                ),
            ),
        ),
    )


def _extremes(views: Sequence[StiffnessView], *, several: bool) -> Section:
    return Section(
        "extremes",
        "The stiffest and the calmest inputs",
        "Inputs",
        (
            Words(
                "NSI against depth for the inputs with the largest and the smallest TNS; the "
                "dotted line is the median of all. The inputs were chosen by their TNS, so the "
                "groups differ by construction: the chart shows at which steps."
            ),
            *(
                Plot(
                    f"extremes-{i}",
                    plots.extremes_figure(view),
                    "NSI by step for the stiffest and calmest inputs",
                    _titles([view]) if several else "",
                    surfaces.caption_samples(view),
                    switch=True,
                )
                for i, view in enumerate(views)
            ),
        ),
    )


def _titles(views: Sequence[StiffnessView]) -> str:
    return " and ".join(clean(view.title, longest=80) for view in views)


DEFINITIONS = (
    (
        "Step, state, rate",
        Markup(
            "A residual network adds a branch to a shortcut, again and again. Each addition is a "
            "step of an ODE solver: the shortcut's value is the state <var>x</var><sub>t</sub>, "
            "the branch is the rate <var>f</var><sub>t</sub>, and attention, if there is any, is "
            "the step size Δt."
        ),
    ),
    (
        "NSI",
        Markup(
            '<span class="formula">ζ<sub>t</sub> = ‖<var>f</var><sub>t</sub>‖ / '
            "‖<var>x</var><sub>t</sub>‖</span> The size of the rate relative to the state, for one "
            "image and one step. 0.5 means that the branch is half as large as what it is added "
            "to; near 0 the step barely changes anything; above 1 it outweighs all that was there."
        ),
    ),
    (
        "Increment",
        Markup(
            '<span class="formula">‖Δt ⊗ <var>f</var><sub>t</sub>‖ / '
            "‖<var>x</var><sub>t</sub>‖</span> The same after attention has scaled the rate: what "
            "is really added. Without a gate it equals NSI. The total of increments is TNS with "
            "increments in the place of NSI: folding a constant gate into the weights changes NSI "
            "and TNS, and keeps this."
        ),
    ),
    (
        "Stage, counted",
        Markup(
            "A stage is a run of steps whose states have one shape. Its first step is shown but "
            "not counted in TNS, as in the definition of TNS; in most networks the shape changes "
            "there. Where a stage has a single counted step, that is its own mean and adds "
            "nothing, so TNS rests on the stages with two or more."
        ),
    ),
    (
        "TNS",
        Markup(
            '<span class="formula"><var>m</var> · (<var>m</var> / μ − 1)</span> Total neural '
            "stiffness of one image and one stage, where <var>m</var> is its largest and μ its "
            "mean NSI: the NSI of the stiffest step, times how far it stands out. It is the area "
            "of the rectangle of all thresholds (M₁, M₂) that this step passes. With several "
            "stages it is the area that their rectangles cover together, overlaps once. The TNS of "
            "a network is the mean over images; ± is its standard error."
        ),
    ),
)
