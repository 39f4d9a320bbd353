"""What a page and a terminal show of a fold."""

from collections import Counter
from collections.abc import Sequence

from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.table import Table as Lines
from rich.text import Text

from stiffnet.report import cells
from stiffnet.report.blocks import (
    Article,
    Cell,
    Column,
    Facts,
    Findings,
    Part,
    Row,
    Section,
    Table,
    Tiles,
    Words,
)
from stiffnet.report.terminal import spoken
from stiffnet.report.text import (
    Sentence,
    Strong,
    clean,
    cleaned,
    count,
    images,
    listed,
    number,
    percent,
    rows,
)
from stiffnet.results.fold import FoldReport


def parts(given: Sequence[tuple[FoldReport, str]]) -> list[Part]:
    """Return what folds put on a page, one after the other."""
    numbers = [""] if len(given) == 1 else [f"-{i}" for i in range(len(given))]
    return [
        _part(report, clean(title or report.title, longest=200), end)
        for (report, title), end in zip(given, numbers, strict=True)
    ]


def _part(report: FoldReport, title: str, end: str) -> Part:
    frame = report.to_frame()
    folded = cells.table(
        "folded", "Folded", rows(frame[frame["folded"]]),
        (cells.words("What", "name"), cells.words("Kind", "kind", longest=60),
         cells.words("Into", "into", hint="what took it in", longest=300)),
        opened=True,
    )  # fmt: skip
    left = cells.table(
        "left", "Left", rows(frame[~frame["folded"]]),
        (cells.words("What", "name"), cells.words("Why it stays", "reason", longest=600)),
        opened=True,
    )  # fmt: skip
    words = (
        "Both networks were run on the same images. Where no time was taken, or operations cannot "
        "be counted, there is no row."
    )
    return Part(
        kind="fold",
        articles=(
            Article(
                title,
                (
                    Words(headline(report), "lede"),
                    Tiles(tuple(_tiles(report))),
                    Findings((agreement(report), *((note,) for note in report.notes))),
                ),
            ),
        ),
        sections=(
            Section(
                f"costs{end}",
                "What a pass costs, before and after",
                "Costs",
                (Words(words), costs_table(report)),
            ),
        ),
        tables=((title, (folded, *([left] if report.refused else []))),),
        definitions=DEFINITIONS,
        facts=((title, Facts(cleaned(report.facts))),),
    )


def terminal(report: FoldReport) -> RenderableType:
    """Return what a terminal shows of a report."""
    table = Lines("", "before", "after")
    for row in costs_table(report).rows:
        table.add_row(*(Text(cell.text) for cell in row.cells))
    return Group(
        Text(f"Folded: {_kinds(report)}"),
        *(
            Text(f"Left: {clean(left.name)}, because {clean(left.reason)}")
            for left in report.refused
        ),
        table,
        spoken(agreement(report)),
        *map(Text, report.notes),
    )


def headline(report: FoldReport) -> Sentence:
    """Say what was folded, what stays, and what that saves, in one sentence."""
    fewer = report.parameters_before - report.parameters_after
    share = f" ({percent(fewer / report.parameters_before)})" if report.parameters_before else ""
    stays = f"; {count(len(report.refused))} more could not be folded" if report.refused else ""
    return (
        Strong(_kinds(report)),
        " went into the weights of other layers, and the network has ",
        Strong(f"{count(abs(fewer))} parameters {'fewer' if fewer >= 0 else 'more'}"),
        f"{share}{stays}.",
    )


def agreement(report: FoldReport) -> Sentence:
    """Say how far the outputs differ."""
    error = f"{report.scaled_error:.1e}"
    if report.places:
        names = ", ".join(clean(place, longest=120) for place in report.places)
        return (
            f"Outputs are chosen by their order; {names}, before that, differ by ",
            Strong(error),
            " of the largest number.",
        )
    return ("Outputs differ by ", Strong(error), " of the largest output.")


def costs_table(report: FoldReport) -> Table:
    """Return one row a quantity, before and after; without those that nobody knows of both."""
    before, after = report.before, report.after
    lines = [("parameters", count(before.parameters), count(after.parameters))]
    if before.macs is not None and after.macs is not None:
        lines.append(("MACs an image", count(before.macs), count(after.macs)))
        lines.append(("FLOPs an image", count(before.flops), count(after.flops)))
    if before.seconds and after.seconds:
        times = before.seconds, after.seconds
        milliseconds = (f"{1e3 * seconds:.1f} ms" for seconds in times)
        lines.append((f"a pass of {images(report.images)}", *milliseconds))
        lines.append(("images/s", *(f"{report.images / seconds:.0f}" for seconds in times)))
    return Table(
        "forms",
        "The network before and after",
        (Column("", numeric=False), Column("before"), Column("after")),
        tuple(Row(tuple(map(Cell, line))) for line in lines),
        sheet=True,
    )


def _kinds(report: FoldReport) -> str:
    kinds = Counter(item.kind for item in report.folded)
    return listed([f"{many} × {clean(kind, longest=60)}" for kind, many in kinds.items()])


def _tiles(report: FoldReport) -> list[tuple[str, str, str]]:
    """Return the numbers under the headline: name, value, what it is made of."""
    left = len(report.refused)
    tiles = [
        ("Folded", count(len(report.folded)), f"{count(left)} left" if left else "nothing left"),
        (
            "Parameters",
            count(report.parameters_after),
            f"of {count(report.parameters_before)} before",
        ),
        ("Scaled error", f"{report.scaled_error:.0e}", f"on {images(report.images)}"),
    ]
    if report.before.seconds and report.after.seconds:
        faster = number(report.before.seconds / report.after.seconds)
        tiles.append(("Speed", f"{faster} ×", "images a second, against before"))
    return tiles


DEFINITIONS = (
    (
        "Folded",
        Markup(
            "A constant gate multiplies what a layer gives, so its factors can be multiplied into "
            "that layer's weights; branches that are added become one layer; a norm in evaluation "
            "is a factor and an offset of each channel. The network computes the same, with less."
        ),
    ),
    (
        "Scaled error",
        Markup(
            '<span class="formula">max |Δ<var>y</var>| / max |<var>y</var>|</span> The largest '
            "difference of the outputs, over the largest output."
        ),
    ),
)
