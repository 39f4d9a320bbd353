"""What a page and a terminal show of attention values."""

from functools import partial
from typing import Any

import numpy as np
from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.table import Table

from stiffnet.report import blocks, cells, stripes_plots as plots
from stiffnet.report.terminal import Lines, told
from stiffnet.report.text import (
    a,
    clean,
    cleaned,
    count,
    fixed,
    known,
    largest,
    number,
    percent,
    rows,
    strong,
)
from stiffnet.results.growth import Growth
from stiffnet.results.stripes import StripeReport

STRIPED = 0.9  # a score from which a picture looks striped to the eye
SETTLED = 0.01  # a mean difference between epochs below which values have settled
_BAR = 10  # cells of a terminal
_NAME = 26  # cells; a longer name is shortened in its middle


def part(report: StripeReport, title: str, end: str) -> blocks.Part:
    """Return what attention values put on a page."""
    lede, tiles = blocks.Words(headline(report), "lede"), blocks.Tiles(_tiles(report))
    growth = [growth_table(report.growth)] if report.growth else []
    return blocks.Part(
        kind="stripe",
        articles=[(title, [lede, tiles, blocks.Findings(findings(report))])],
        sections=_sections(report, end),
        tables=[(title, [modules_table(report), *growth])],
        reading=["stripes", *(["growth"] if growth else [])],
        facts=[(title, blocks.Facts(cleaned(report.facts)))],
    )


def terminal(report: StripeReport) -> RenderableType:
    """Return what a terminal shows of a report."""
    title = clean(report.title, longest=120)
    return Group(told(title, headline(report), findings(report)), modules_lines(report))


def _scored(report: StripeReport) -> list[dict[str, Any]]:
    """Return the rows of modules that have a score."""
    return known(rows(report.to_frame()), "score")


def mean_cost(report: StripeReport) -> float | None:
    """Return the cost of all modules together, as a root mean square."""
    costs = [row["cost"] for row in known(_scored(report), "cost")]
    return float(np.sqrt(np.mean(np.square(costs)))) if costs else None


def dearest(report: StripeReport) -> dict[str, Any] | None:
    """Return the row of the module whose constant form costs most."""
    return largest(_scored(report), "cost")


def headline(report: StripeReport) -> str:
    """Say how constant attention is, in one sentence."""
    scored = _scored(report)
    if not scored:
        return f"No module let anything through, so {strong('there are no values')} to look at."
    striped = strong(f"{sum(row['score'] >= STRIPED for row in scored)} of {len(scored)}")
    return (
        f"{striped} modules give stripes: at least {percent(STRIPED)} of the variance of their "
        f"values lies between channels, and not between {report.noun}. Constant values would "
        f"change what a module lets through by {strong(percent(mean_cost(report)))} (root mean "
        f"square over modules, {count(report.samples)} {report.noun})."
    )


def findings(report: StripeReport) -> list[str]:
    """Say what stands out."""
    found, one = [], report.noun[:-1]
    worst = dearest(report)
    if worst is not None:
        found.append(
            f"Constant attention would cost most at {strong(clean(worst['step'], longest=60))}: "
            f"what it lets through would change by {percent(worst['cost'])}, and its score is "
            f"{number(worst['score'])}."
        )
    calmer = [
        row["value_std_mean"] / row["input_std_mean"]
        for row in known(_scored(report), "input_std_mean", "value_std_mean")
        if row["input_std_mean"]
    ]
    if calmer:
        times = strong(f"{number(np.median(calmer), 2)} times")
        found.append(
            f"Over {report.noun} the values of a channel spread {times} as far as the inputs of "
            "the module do (median over modules)."
        )
    if silent := sum(module.silent for module in report.modules):
        found.append(
            f"In {count(silent)} pairs of {one} and channel the rate is zero, so that there is no "
            "value; they are left out."
        )
    if spatial := sum(module.spatial for module in report.modules):
        found.append(
            f"{count(spatial)} modules weigh positions too: their values are the nearest single "
            "number, and what that misses is part of the cost."
        )
    if report.drift is not None:
        means = report.drift.means()[:, -1]
        settled = strong(f"{count((means < SETTLED).sum())} of {count(len(means))}")
        first, last = report.drift.epochs[-1]
        found.append(
            f"Between epochs {count(first)} and {count(last)} the values of {settled} modules "
            f"moved by less than {SETTLED:g}."
        )
    if report.growth is not None:
        end = rows(report.growth.to_frame())[-1]
        broken = bool((report.growth.nearest > 1).any())
        verdict = "the bound was broken" if broken else f"the bound held for every {one}"
        times = strong(f"{number(end['growth'])} times")
        found.append(
            f"A small perturbation of the first state is {times} as large after the last step; "
            f"Theorem 6.1 allows {number(end['bound'])} times, and {verdict}."
        )
    return found


def _tiles(report: StripeReport) -> list[tuple[str, str, str]]:
    scores = report.to_frame()["score"].dropna()
    tiles = [
        ("Stripe score", number(scores.median() if len(scores) else None), "median over modules"),
        ("Cost of constant values", percent(mean_cost(report)), "root mean square over modules"),
    ]
    worst = dearest(report)
    if worst is not None:
        step = clean(worst["step"], longest=40)
        tiles.append(("Dearest module", percent(worst["cost"]), f"at {step}"))
    through = f"through {count(len(report.modules))} modules"
    tiles.append((report.noun.capitalize(), count(report.samples), through))
    return tiles


def _sections(report: StripeReport, end: str) -> list[blocks.Section]:
    kept, samples, noun = count(len(report.number)), count(report.samples), report.noun
    found: list[blocks.Section] = []

    def add(name: str, heading: str, link: str, text: str, drawn: blocks.Block) -> None:
        found.append(blocks.Section(f"{name}{end}", heading, link, text, [drawn]))

    text = (
        f"A score of 1 means that every {noun[:-1]} gets the same values. The cost is how much of "
        "what a module lets through would change if each channel's value were its mean over the "
        f"{noun}."
    )
    score = blocks.Plot(f"score{end}", plots.score_figure(report), "Score and cost by module")
    add("scores", "How constant each module is", "Scores", text, score)
    text = (
        f"A row is {a(noun[:-1])}, a column is a channel. Vertical stripes are channels that have "
        f"one value for all {noun}. {kept} of {samples} {noun}, evenly spread over the data; at "
        f"most {plots.CHANNELS} channels, evenly spread too."
    )
    heading = "What goes in, and the stripes that come out"
    add("pictures", heading, "Pictures", text, _pictures(report, end))
    text = (
        f"The standard deviation over {noun} of a channel's value, against that of the module's "
        "input. The line is the median over the channels, the band 90 % of them."
    )
    label = "Standard deviations by module"
    spread = blocks.Plot(f"spread{end}", plots.spread_figure(report), label, switch=True)
    add("spreads", f"How far {noun} differ, before and after", "Spread", text, spread)
    if (drift := report.drift) is not None:
        text = (
            "The change of a value from one epoch to the next, without its sign, averaged over "
            f"{drift.images} {noun} and all channels of a module. The fainter, the more settled."
        )
        label = "Change of values by module and epoch"
        drawn = blocks.Plot(f"drift{end}", plots.drift_figure(drift), label)
        add("epochs", "How values settle during training", "Epochs", text, drawn)
    if (growth := report.growth) is not None:
        text = (
            f"A random perturbation of {growth.epsilon} of the first state, {growth.draws} for "
            f"each of {growth.images} {noun}, followed through the steps. Theorem 6.1 multiplies "
            "the worst case of every step; no direction is the worst of all steps at once, so the "
            "two part."
        )
        label = "Growth of a perturbation by step"
        drawn = blocks.Plot(f"growth{end}", plots.growth_figure(growth), label)
        add("noise", "How noise grows, and what it is bound to", "Noise", text, drawn)
    return found


def _pictures(report: StripeReport, end: str) -> blocks.Gallery:
    """Return the heat maps of every module, of which one is shown at a time."""
    items: list[tuple[str, list[blocks.Block]]] = []
    drawn_of = partial(plots.picture, report.number, one=report.noun[:-1])
    for i, (module, row) in enumerate(zip(report.modules, rows(report.to_frame()), strict=True)):
        step = clean(module.step, longest=120)
        figures = {
            ("inputs", "Its input: the mean rate"): drawn_of(module.inputs, "input"),
            ("values", "Its values"): drawn_of(module.values, "value"),
        }
        if report.drift is not None and module.step in report.drift.differences:
            moved = ("moved", "How far its values moved, epoch by epoch")
            figures[moved] = plots.module_drift_figure(report.drift, module.step)
        drawn = [
            blocks.Plot(f"{kind}{end}-{i}", figure, f"Heat map for {step}", title)
            for (kind, title), figure in figures.items()
        ]
        verdict = Markup("Score <b>{}</b>, cost <b>{}</b>")
        said = verdict.format(number(row["score"]), percent(row["cost"]))
        items.append((step, [blocks.Words(said, "verdict"), blocks.Box("pair", drawn)]))
    return blocks.Gallery(f"module{end}", "Module", items)


def modules_table(report: StripeReport) -> blocks.Table:
    """One row a module, with everything that is known of it."""
    between = "share of the values' variance that lies between channels"
    change = "change of what the module lets through if its values were constant"
    noun = report.noun
    over = f"over {noun}, mean over channels"
    silent = f"pairs of {noun[:-1]} and channel whose rate is zero"
    fields = [
        cells.words("Step", "step"),
        cells.numbers("Score", "score", between, places=4, longest=1.0),
        cells.numbers("Cost", "cost", change, write=percent),
        cells.numbers("Value", "value_mean", f"mean over {noun} and channels"),
        cells.numbers("sd", "value_std_mean", f"of a channel's values {over}"),
        cells.numbers("Largest sd", "value_std_max", "of any channel"),
        cells.numbers("Input sd", "input_std_mean", f"of a channel's mean rate {over}"),
        cells.numbers("Channels", "channels", write=cells.whole),
        cells.numbers("Silent", "silent", silent, write=cells.whole),
        cells.words("Module", "module", longest=60),
    ]
    records, worst = rows(report.to_frame()), _is(dearest(report))
    return cells.table("modules", "Modules", records, fields, opened=True, marked=worst)


def growth_table(growth: Growth) -> blocks.Table:
    """One row a step: what a perturbation did, and what it was bound to."""
    product = "product of the norms of the steps' Jacobians"
    noun = growth.noun
    identity = "norm of the shortcut's Jacobian, 1 for an identity"
    fields = [
        cells.words("Step", "step"),
        cells.numbers("Growth", "growth", f"after this step, mean over {noun} and directions"),
        cells.numbers("Largest", "growth_max", f"of any {noun[:-1]} and direction"),
        cells.numbers("Local bound", "local_bound", product),
        cells.numbers("Bound", "bound", "of Theorem 6.1"),
        cells.numbers("Factor", "factor", "of this step in the bound"),
        cells.numbers("α", "gate_max", "largest gate"),
        cells.numbers("Shortcut", "shortcut_norm", identity),
        cells.numbers("Rate", "rate_norm", "norm of the rate's Jacobian, the reading of ‖W‖"),
    ]
    return cells.table("growth", "Growth", rows(growth.to_frame()), fields)


def modules_lines(report: StripeReport) -> Table:
    """Return one row a module, with its score as a bar; `▲` marks the dearest to make constant."""
    headings = ("", "cost", "value", "sd", "input sd", "chan.")
    names = [module.step for module in report.modules]
    lines = Lines("Score", headings, steps=names, name=_NAME, bar=_BAR, longest=1.0)
    is_worst = _is(dearest(report))
    for row in rows(report.to_frame()):
        spreads = [row[key] for key in ("value_mean", "value_std_mean", "input_std_mean")]
        numbers = [fixed(row["score"], 3), percent(row["cost"])]
        numbers += [*(number(value, 2) for value in spreads), count(row["channels"])]
        lines.add(row["step"], row["score"], numbers, marked=is_worst(row))
    return lines.table


def _is(worst: dict[str, Any] | None) -> Any:
    return lambda row: worst is not None and row["step"] == worst["step"]
