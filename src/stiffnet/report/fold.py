"""What a page and a terminal show of a fold."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from stiffnet.report import blocks, cells
from stiffnet.report.terminal import sheet_lines, spoken
from stiffnet.report.text import clean, cleaned, count, images, number, percent, rows, strong
from stiffnet.results.fold import FoldReport
from stiffnet.words import listed


def part(report: FoldReport, title: str, end: str) -> blocks.Part:
    """Return what a fold puts on a page."""
    text = (
        "Both networks were run on the same images. Where no time was taken, or operations cannot "
        "be counted, there is no row."
    )
    heading = "What a pass costs, before and after"
    findings = blocks.Findings([agreement(report), *report.notes])
    said = [blocks.Words(headline(report), "lede"), blocks.Tiles(_tiles(report)), findings]
    return blocks.Part(
        kind="fold",
        articles=[(title, said)],
        sections=[blocks.Section(f"costs{end}", heading, "Costs", text, [costs_table(report)])],
        tables=[(title, tables(report))],
        reading=["fold"],
        facts=[(title, blocks.Facts(cleaned(report.facts)))],
    )


def terminal(report: FoldReport) -> RenderableType:
    """Return what a terminal shows of a report."""
    left = (f"Left: {clean(each.name)}, because {clean(each.reason)}" for each in report.refused)
    lines = [f"Folded: {_kinds(report)}", *left]
    table = sheet_lines(costs_table(report))
    return Group(*map(Text, lines), table, spoken(agreement(report)), *map(Text, report.notes))


def headline(report: FoldReport) -> str:
    """Say what was folded, what stays, and what that saves, in one sentence."""
    fewer = report.parameters_before - report.parameters_after
    share = f" ({percent(fewer / report.parameters_before)})" if report.parameters_before else ""
    stays = f"; {count(len(report.refused))} more could not be folded" if report.refused else ""
    saved = strong(f"{count(abs(fewer))} parameters {'fewer' if fewer >= 0 else 'more'}")
    return (
        f"{strong(_kinds(report))} went into the weights of other layers, and the network has "
        f"{saved}{share}{stays}."
    )


def agreement(report: FoldReport) -> str:
    """Say how far the outputs differ."""
    error = strong(f"{report.scaled_error:.1e}")
    if not report.places:
        return f"Outputs differ by {error} of the largest output."
    names = ", ".join(clean(place, longest=120) for place in report.places)
    return (
        f"Outputs are chosen by their order; {names}, before that, differ by {error} of the "
        "largest number."
    )


def costs_table(report: FoldReport) -> blocks.Table:
    """Return one row a quantity, before and after; without those that nobody knows of both."""
    before, after = report.before, report.after
    lines: list[Sequence[str]] = [("parameters", count(before.parameters), count(after.parameters))]
    if before.macs is not None and after.macs is not None:
        lines.append(("MACs an image", count(before.macs), count(after.macs)))
        lines.append(("FLOPs an image", count(before.flops), count(after.flops)))
    if before.seconds and after.seconds:
        times = before.seconds, after.seconds
        lines.append((f"a pass of {images(report.images)}", *(f"{1e3 * s:.1f} ms" for s in times)))
        lines.append(("images/s", *(f"{report.images / s:.0f}" for s in times)))
    return cells.sheet("The network before and after", ("", "before", "after"), lines)


def tables(report: FoldReport) -> list[blocks.Table]:
    """Return what was folded, and what stays and why."""
    frame = report.to_frame()
    what, kind = cells.words("What", "name"), cells.words("Kind", "kind", longest=60)
    into = cells.words("Into", "into", "what took it in", longest=300)
    why = cells.words("Why it stays", "reason", write=cells.remark)
    folded, left = rows(frame[frame["folded"]]), rows(frame[~frame["folded"]])
    made = [cells.table("folded", "Folded", folded, [what, kind, into], opened=True)]
    return [*made, cells.table("left", "Left", left, [what, why], opened=True)] if left else made


def _kinds(report: FoldReport) -> str:
    kinds = Counter(item.kind for item in report.folded)
    return listed([f"{many} × {clean(kind, longest=60)}" for kind, many in kinds.items()])


def _tiles(report: FoldReport) -> list[tuple[str, str, str]]:
    left = f"{count(len(report.refused))} left" if report.refused else "nothing left"
    before = f"of {count(report.parameters_before)} before"
    tiles = [
        ("Folded", count(len(report.folded)), left),
        ("Parameters", count(report.parameters_after), before),
        ("Scaled error", f"{report.scaled_error:.0e}", f"on {images(report.images)}"),
    ]
    if report.before.seconds and report.after.seconds:
        faster = number(report.before.seconds / report.after.seconds)
        tiles.append(("Speed", f"{faster} ×", "images a second, against before"))
    return tiles
