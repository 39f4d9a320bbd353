"""What a page and a terminal show of attention values."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.table import Table as Lines
from rich.text import Text

from stiffnet.report import cells, stripes_plots as plots
from stiffnet.report.blocks import (
    Article,
    Block,
    Box,
    Facts,
    Findings,
    Gallery,
    Part,
    Plot,
    Section,
    Table,
    Tiles,
    Words,
)
from stiffnet.report.stripes_findings import dearest, findings, headline, mean_cost
from stiffnet.report.terminal import bar, lines_table, told
from stiffnet.report.text import clean, cleaned, count, fixed, number, percent, rows
from stiffnet.results.growth import Growth
from stiffnet.results.stripes import StripeReport

_BAR = 10  # cells of a terminal
_NAME = 26  # cells; a longer name is shortened in its middle


def parts(given: Sequence[tuple[StripeReport, str]]) -> list[Part]:
    """Return what attention values put on a page, network by network."""
    numbers = [""] if len(given) == 1 else [f"-{i}" for i in range(len(given))]
    return [
        _part(report, clean(title or report.title, longest=200), end)
        for (report, title), end in zip(given, numbers, strict=True)
    ]


def _part(report: StripeReport, title: str, end: str) -> Part:
    """Return what one network puts there; `end` tells its places from those of another."""
    said = (
        Words(headline(report), "lede"),
        Tiles(tuple(_tiles(report))),
        Findings(tuple(findings(report))),
    )
    tables = (modules_table(report), *([growth_table(report.growth)] if report.growth else []))
    return Part(
        kind="stripe",
        articles=(Article(title, said),),
        sections=tuple(_sections(report, end)),
        tables=((title, tables),),
        definitions=DEFINITIONS + (THEOREM if report.growth else ()),
        facts=((title, Facts(cleaned(report.facts))),),
    )


def terminal(report: StripeReport) -> RenderableType:
    """Return what a terminal shows of a report."""
    title = Text(clean(report.title, longest=120), style="bold")
    return Group(told(title, headline(report), findings(report)), modules_lines(report))


def _tiles(report: StripeReport) -> list[tuple[str, str, str]]:
    """Return the numbers under the headline: name, value, what it is made of."""
    scores = report.to_frame()["score"].dropna()
    tiles = [
        ("Stripe score", number(scores.median() if len(scores) else None), "median over modules"),
        ("Cost of constant values", percent(mean_cost(report)), "root mean square over modules"),
    ]
    worst = dearest(report)
    if worst is not None:
        step = clean(worst["step"], longest=40)
        tiles.append(("Dearest module", percent(worst["cost"]), f"at {step}"))
    tiles.append(("Images", count(report.samples), f"through {count(len(report.modules))} modules"))
    return tiles


def _sections(report: StripeReport, end: str) -> list[Section]:
    kept, samples = count(len(report.number)), count(report.samples)
    found = [
        Section(
            f"scores{end}",
            "How constant each module is",
            "Scores",
            (
                Words(
                    "A score of 1 means that every image gets the same values. The cost is how "
                    "much of what a module lets through would change if each channel's value were "
                    "its mean over the images."
                ),
                Plot(f"score{end}", plots.score_figure(report), "Score and cost by module"),
            ),
        ),
        Section(
            f"pictures{end}",
            "What goes in, and the stripes that come out",
            "Pictures",
            (
                Words(
                    "A row is an image, a column is a channel. Vertical stripes are channels that "
                    f"have one value for all images. {kept} of {samples} images, evenly spread "
                    f"over the data; at most {plots.CHANNELS} channels, evenly spread too."
                ),
                _pictures(report, end),
            ),
        ),
        Section(
            f"spreads{end}",
            "How far images differ, before and after",
            "Spread",
            (
                Words(
                    "The standard deviation over images of a channel's value, against that of the "
                    "module's input. The line is the median over the channels, the band 90 % of "
                    "them."
                ),
                Plot(
                    f"spread{end}", plots.spread_figure(report), "Standard deviations by module",
                    switch=True,
                ),
            ),
        ),
    ]  # fmt: skip
    if (drift := report.drift) is not None:
        words = (
            "The change of a value from one epoch to the next, without its sign, averaged over "
            f"{drift.images} images and all channels of a module. The fainter, the more settled."
        )
        label = "Change of values by module and epoch"
        drawn = Plot(f"drift{end}", plots.drift_figure(drift), label)
        heading = "How values settle during training"
        found.append(Section(f"epochs{end}", heading, "Epochs", (Words(words), drawn)))
    if (growth := report.growth) is not None:
        words = (
            f"A random perturbation of {growth.epsilon} of the first state, {growth.draws} for "
            f"each of {growth.images} images, followed through the steps. Theorem 6.1 multiplies "
            "the worst case of every step; no direction is the worst of all steps at once, so the "
            "two part."
        )
        label = "Growth of a perturbation by step"
        drawn = Plot(f"growth{end}", plots.growth_figure(growth), label)
        heading = "How noise grows, and what it is bound to"
        found.append(Section(f"noise{end}", heading, "Noise", (Words(words), drawn)))
    return found


def _pictures(report: StripeReport, end: str) -> Gallery:
    """Return the heat maps of every module, of which one is shown at a time."""
    items = []
    for i, (module, row) in enumerate(zip(report.modules, rows(report.to_frame()), strict=True)):
        step = clean(module.step, longest=120)
        drawn = [
            ("inputs", "Its input: the mean rate",
             plots.picture(report.number, module.inputs, "input")),
            ("values", "Its values", plots.picture(report.number, module.values, "value")),
        ]  # fmt: skip
        if report.drift is not None and module.step in report.drift.differences:
            moved = plots.module_drift_figure(report.drift, module.step)
            drawn.append(("moved", "How far its values moved, epoch by epoch", moved))
        verdict = Markup("Score <b>{}</b>, cost <b>{}</b>")
        blocks: tuple[Block, ...] = (
            Words(verdict.format(number(row["score"]), percent(row["cost"])), "verdict"),
            Box(
                "pair",
                tuple(
                    Plot(f"{kind}{end}-{i}", figure, f"Heat map for {step}", title)
                    for kind, title, figure in drawn
                ),
            ),
        )
        items.append((step, blocks))
    return Gallery(f"module{end}", "Module", tuple(items))


def modules_table(report: StripeReport) -> Table:
    """One row a module, with everything that is known of it."""
    fields = (
        cells.words("Step", "step"),
        cells.decimals(
            "Score", "score", 4, longest=1.0,
            hint="share of the values' variance that lies between channels",
        ),
        cells.share(
            "Cost", "cost", "change of what the module lets through if its values were constant"
        ),
        cells.digits("Value", "value_mean", "mean over images and channels"),
        cells.digits(
            "sd", "value_std_mean", "of a channel's values over images, mean over channels"
        ),
        cells.digits("Largest sd", "value_std_max", "of any channel"),
        cells.digits(
            "Input sd", "input_std_mean",
            "of a channel's mean rate over images, mean over channels",
        ),
        cells.whole("Channels", "channels"),
        cells.whole("Silent", "silent", "pairs of image and channel whose rate is zero"),
        cells.words("Module", "module", longest=60),
    )  # fmt: skip
    records = rows(report.to_frame())
    return cells.table(
        "modules", "Modules", records, fields, opened=True, marked=_is(dearest(report))
    )


def growth_table(growth: Growth) -> Table:
    """One row a step: what a perturbation did, and what it was bound to."""
    fields = (
        cells.words("Step", "step"),
        cells.digits("Growth", "growth", "after this step, mean over images and directions"),
        cells.digits("Largest", "growth_max", "of any image and direction"),
        cells.digits("Local bound", "local_bound", "product of the norms of the steps' Jacobians"),
        cells.digits("Bound", "bound", "of Theorem 6.1"),
        cells.digits("Factor", "factor", "of this step in the bound"),
        cells.digits("α", "gate_max", "largest gate"),
        cells.digits(
            "Shortcut", "shortcut_norm", "norm of the shortcut's Jacobian, 1 for an identity"
        ),
        cells.digits("Rate", "rate_norm", "norm of the rate's Jacobian, the reading of ‖W‖"),
    )
    return cells.table("growth", "Growth", rows(growth.to_frame()), fields)


def modules_lines(report: StripeReport) -> Lines:
    """Return one row a module, with its score as a bar; `▲` marks the dearest to make constant."""
    headings = ("", "cost", "value", "sd", "input sd", "chan.")
    table = lines_table("Score", headings, name=_NAME, bar=_BAR)
    is_worst = _is(dearest(report))
    for row in rows(report.to_frame()):
        marked = is_worst(row)
        style, colour = ("bold", "red") if marked else ("", "cyan")
        table.add_row(
            Text("▲" if marked else "", style=colour),
            Text(clean(row["step"], longest=_NAME), style=style),
            Text(bar(row["score"], 1.0, _BAR), style=colour),
            Text(fixed(row["score"], 3), style=style),
            Text(percent(row["cost"]), style=style),
            *(
                Text(number(row[key], 2), style=style)
                for key in ("value_mean", "value_std_mean", "input_std_mean")
            ),
            Text(count(row["channels"]), style=style),
        )
    return table


def _is(worst: dict[str, Any] | None) -> Any:
    return lambda row: worst is not None and row["step"] == worst["step"]


DEFINITIONS = (
    (
        "Value",
        Markup(
            "The number <var>s</var> by which a module multiplies the rate <var>f</var> of one "
            "image and channel. Where it weighs positions differently, the single number that "
            "comes closest."
        ),
    ),
    (
        "Score",
        Markup(
            '<span class="formula">between channels / (between channels + between images)</span> '
            "The share of the variance of all values of a module that the channel explains. "
            "1: perfect stripes. 0: channels are alike on average, and images decide."
        ),
    ),
    (
        "Cost",
        Markup(
            '<span class="formula">‖(<var>s</var> − <var>s̄</var>) ⊗ <var>f</var>‖ / '
            "‖<var>s</var> ⊗ <var>f</var>‖</span> What constant attention would change in what the "
            "module lets through, over all images, with <var>s̄</var> the mean value of each "
            "channel. This, more than the score, tells what the network would feel: a channel that "
            "carries nothing may vary as it likes."
        ),
    ),
    ("Input", Markup("The mean over positions of the rate that the module is given.")),
)
THEOREM = (
    (
        "Theorem 6.1",
        Markup(
            '<span class="formula">∏ (1 + α<sub>t</sub> ‖<var>W</var><sub>t</sub>‖)</span> bounds '
            "the growth of a perturbation, with α the largest gate of a step. For ‖<var>W</var>‖ "
            "we read the norm of the rate's Jacobian at the image, and for 1 that of the "
            "shortcut's. It takes gates for constants. The product of the norms of whole steps' "
            "Jacobians is smaller and does not. Both hold for small perturbations."
        ),
    ),
)
