"""What a page and a terminal show of a perturbation that was followed through a network."""

from rich.console import Group, RenderableType

from stiffnet.report import blocks, cells
from stiffnet.report.stripes import growth_table
from stiffnet.report.stripes_plots import growth_figure
from stiffnet.report.terminal import sheet_lines, told
from stiffnet.report.text import clean, cleaned, count, images, number, percent, rows, strong
from stiffnet.results.growth import Growth

_COLUMNS = ("growth", "local_bound", "bound", "factor")


def terminal(growth: Growth) -> RenderableType:
    """Return what a terminal shows: the sentences, and the steps with their bounds."""
    columns = [cells.numbers(key.replace("_", " "), key) for key in _COLUMNS]
    fields = [cells.words("Step", "step", longest=30), *columns]
    table = cells.table("growth", "Growth", rows(growth.to_frame()), fields)
    said = told(clean(growth.title, longest=200), headline(growth), findings(growth))
    return Group(said, sheet_lines(table, light=True))


def part(growth: Growth, title: str, end: str) -> blocks.Part:
    """Return what it puts on a page."""
    text = (
        "The measured growth of the perturbation after each step, the product of the norms of the "
        "steps' Jacobians, and Theorem 6.1's bound. All on a logarithmic axis."
    )
    drawn = blocks.Plot(f"growth{end}", growth_figure(growth), "Growth of a perturbation by step")
    last, one = rows(growth.to_frame())[-1], growth.noun[:-1]
    tiles = [
        ("Growth", f"{number(last['growth'])} ×", "measured, after the last step"),
        ("Bound", f"{number(last['bound'])} ×", "of Theorem 6.1"),
        ("Nearest", percent(max(growth.nearest)), f"of the bound, at any step and {one}"),
    ]
    lede, found = blocks.Words(headline(growth), "lede"), blocks.Findings(findings(growth))
    said = [lede, blocks.Tiles(tiles), found]
    heading = "How a perturbation grows"
    return blocks.Part(
        kind="growth",
        articles=[(title, said)],
        sections=[blocks.Section(f"growing{end}", heading, "Growth", text, [drawn])],
        tables=[(title, [growth_table(growth)])],
        reading=["growth"],
        facts=[(title, blocks.Facts(cleaned(growth.facts)))],
    )


def headline(growth: Growth) -> str:
    """Say how far a perturbation grew, next to what bounds it."""
    last = rows(growth.to_frame())[-1]
    grown, bound = (strong(f"{number(last[key])} times") for key in ("growth", "bound"))
    return (
        f"A random perturbation of {number(growth.epsilon)} of the first state grows "
        f"{grown} on its way through "
        f"{count(len(growth.steps))} steps, on average over "
        f"{images(growth.images, growth.noun)} and {count(growth.draws)} directions each; Theorem "
        f"6.1 bounds it by {bound}."
    )


def findings(growth: Growth) -> list[str]:
    """Say how near the bound is, and which step widens it most."""
    nearest = float(max(growth.nearest))
    broken = (
        f"The bound was exceeded, by {percent(nearest - 1)}: it is of first order, and its norms "
        "are estimates from below. Try a smaller epsilon, or more iterations."
    )
    share = strong(percent(nearest))
    kept = f"No {growth.noun[:-1]} and direction came nearer to the bound than {share}."
    frame = growth.to_frame()
    widest = rows(frame.nlargest(1, "factor"))[0]
    return [
        broken if nearest > 1 else kept,
        f"The step that widens the bound most is {strong(clean(widest['step'], longest=60))}, by a "
        f"factor of {number(widest['factor'])}.",
    ]
