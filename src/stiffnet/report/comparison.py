"""What a page and a terminal show of networks that were compared on the same images."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType

from stiffnet.report import cells
from stiffnet.report.blocks import Block, Facts, Findings, Part, Plot, Section, Table, Words
from stiffnet.report.comparison_plots import difference_figure, share_figure, steps_figure
from stiffnet.report.terminal import sheet_lines, told
from stiffnet.report.text import (
    MISSING,
    capital,
    clean,
    cleaned,
    count,
    decimals_for,
    fixed,
    images,
    number,
    strong,
    tenths,
    with_error,
)
from stiffnet.results.comparison import Comparison, Difference, Network, Pair
from stiffnet.words import listed

Writer = Callable[[Any], str]
MINUS = "−"

_LONGEST = 60  # characters of a network's name in a sentence
_NAMED = 3  # steps in a sentence


def terminal(comparison: Comparison) -> RenderableType:
    """Return what a terminal shows of a comparison."""
    title = clean(comparison.title, longest=200)
    said = told(title, same_images(comparison), findings(comparison))
    return Group(said, sheet_lines(networks_table(comparison)))


def part(comparison: Comparison, title: str, end: str) -> Part:
    """Return what a comparison puts on a page."""
    networks = comparison.networks
    notes = [
        Words(f"{_name(network.name)}: {clean(text, longest=2000)}", "warning")
        for network in networks
        for text in network.notes
    ]
    said: list[Block] = [
        Words(same_images(comparison), "lede"),
        Findings(findings(comparison)),
        *notes,
        networks_table(comparison),
        Words(_TESTS, "note"),
    ]
    facts = [
        ("Comparison", Facts(cleaned(comparison.facts))),
        *((_name(each.name), Facts(cleaned(_own(each, comparison)))) for each in networks),
    ]
    return Part(
        kind="comparison",
        articles=[(title, said)],
        sections=[*_steps(comparison, end), _stages(comparison, end)],
        tables=pair_tables(comparison),
        reading=["stiffness", "comparison"],
        facts=facts,
    )


_TESTS = (
    "Differences are from the first network, paired image by image, with 95 % intervals; p-values "
    "are of the paired t-test (the sign test where all images differ by the same amount), and of "
    "accuracy by McNemar's exact test."
)


def same_images(comparison: Comparison) -> str:
    """Say what the networks were compared on."""
    return (
        f"{listed([_name(network.name) for network in comparison.networks])} on the same "
        f"{strong(images(comparison.images))}, each prepared as its network wants them."
    )


def findings(comparison: Comparison) -> list[str]:
    """Say what differs between the first network and each of the others."""
    return [sentence for pair in comparison.pairs for sentence in (wholes(pair), _matching(pair))]


def wholes(pair: Pair) -> str:
    """Say how TNS, accuracy and loss of the second network differ from the first one's."""
    told = [_whole(name, found) for name, found in pair.wholes.items()]
    if not told:
        return f"{_name(pair.second)}: neither network has a TNS, a loss or an accuracy."
    return f"{_name(pair.second)}, against {_name(pair.first)}: {'; '.join(told)}."


def _whole(name: str, found: Difference) -> str:
    """Say how far one number of a network is from the first one's."""
    share = name == "accuracy"
    difference, within, p = _told(found, _hundredths if share else number)
    unit = " points" if share else ""
    if found.differs:
        way = "higher" if found.difference > 0 else "lower"
        told = f"{name} is {strong(f'{difference.removeprefix(MINUS)}{unit} {way}')}"
    else:
        told = f"{name} does not differ significantly"
    return told if within == MISSING else f"{told} (95 % interval {within}{unit}, p {p})"


def _matching(pair: Pair) -> str:
    if not pair.matched:
        return (
            f"The steps of {_name(pair.first)} and {_name(pair.second)} do not correspond: "
            f"{clean(pair.reason, longest=400)}. Only whole networks and stages are compared."
        )
    found = sorted((d for d in pair.steps if d.differs), key=lambda d: -abs(d.difference))
    said = strong(f"{count(len(found))} of {count(len(pair.steps))} steps")
    how = "" if pair.matched == "name" else ", paired by their position because names differ"
    named = [f"{_name(d.name)} ({number(d.first)} to {number(d.second)})" for d in found[:_NAMED]]
    most = f"; the largest differences are at {listed(named)}" if named else ""
    return f"{said} of {_name(pair.second)} differ significantly in NSI{how}{most}."


def networks_table(comparison: Comparison) -> Table:
    """Return one row a quantity and one column a network; differences are from the first."""
    networks = comparison.networks
    lines: list[tuple[str, Sequence[str]]] = []
    for name, write, unit, own in (
        ("TNS", number, "", [with_error(each.tns, each.tns_se) for each in networks]),
        ("accuracy", _hundredths, " (points)", [tenths(each.accuracy) for each in networks]),
        ("loss", number, "", [number(each.loss) for each in networks]),
    ):
        if any(text != MISSING for text in own):
            lines.append((capital(name), own))
        found = [pair.wholes.get(name) for pair in comparison.pairs]
        if any(found):
            told = [_told(each, write) for each in found]
            for row, heading in enumerate((f"difference{unit}", "95 % interval", "p")):
                lines.append((heading, ["", *(texts[row] for texts in told)]))
    lines.append(("Steps", [f"{len(n.steps)} in {len(n.shares)} stages" for n in networks]))
    heads = ["", *(_name(each.name) for each in networks)]
    return cells.sheet("The networks side by side", heads, [(name, *own) for name, own in lines])


def _told(found: Difference | None, write: Writer) -> tuple[str, str, str]:
    """Write a difference, its interval, and its p-value."""
    if found is None:
        return MISSING, MISSING, MISSING
    known = found.low is not None and found.high is not None
    within = f"{write(found.low)} to {write(found.high)}" if known else MISSING
    return write(found.difference), within, cells.p_value(found.holm)


def _steps(comparison: Comparison, end: str) -> list[Section]:
    """Return the charts of steps, where some correspond."""
    first, *others = comparison.networks
    both = zip(comparison.pairs, others, strict=True)
    matched = [(pair, other) for pair, other in both if pair.matched]
    if not matched:
        return []
    drawn = steps_figure([first, *(other for _, other in matched)])
    blocks: list[Block] = [
        Plot(f"means{end}", drawn, "Mean NSI by step", "Mean NSI", switch=True),
        *(
            Plot(
                f"differences{end}-{i}",
                difference_figure(pair),
                "Difference of NSI by step",
                f"{_name(pair.second)} minus {_name(pair.first)}",
            )
            for i, (pair, _) in enumerate(matched)
        ),
    ]
    text = (
        "Above, the mean NSI of each step over the images. Below, its difference from the first "
        "network, paired image by image, with its 95 % interval. Filled points differ "
        "significantly after Holm's correction for the number of steps; hollow ones do not."
    )
    return [Section(f"steps{end}", "Which steps differ", "Steps", text, blocks)]


def _stages(comparison: Comparison, end: str) -> Section:
    figure = share_figure(comparison.networks)
    text = (
        "How the NSI of an image, summed over all steps, is divided among the stages. Stages can "
        "be compared even where steps cannot."
    )
    block = Plot(f"shares{end}", figure, "Share of each stage in the sum of NSI")
    return Section(f"stages{end}", "Where in the network it is stiff", "Stages", text, [block])


def pair_tables(comparison: Comparison) -> list[tuple[str, list[Table]]]:
    """Return the numbers of every pair, each under its name."""
    return [
        (f"{_name(pair.second)} against {_name(pair.first)}", list(_tables(pair)))
        for pair in comparison.pairs
    ]


def _tables(pair: Pair) -> Iterator[Table]:
    """Return the numbers of one pair: of its steps, and of its stages."""
    for name, caption, found in (
        ("steps", "NSI of the steps", pair.steps),
        ("stages", "Shares of the stages", pair.stages),
    ):
        if found:
            yield _differences_table(name, caption, found, named=pair.matched != "position")


def _differences_table(
    name: str, caption: str, found: Sequence[Difference], *, named: bool
) -> Table:
    places = decimals_for([value for each in found for value in (each.first, each.second)])
    records = [
        vars(each) | {"difference": each.difference, "differs": each.differs} for each in found
    ]
    other = [] if named else [cells.words("In the other", "other")]
    fields = [
        cells.words("Stage" if name == "stages" else "Step", "name"),
        *other,
        cells.numbers("First", "first", places=places),
        cells.numbers("Second", "second", places=places),
        cells.numbers("Difference", "difference", "second minus first", places=places),
        cells.numbers("from", "low", "lower end of the 95 % interval", places=places),
        cells.numbers("to", "high", "upper end of the 95 % interval", places=places),
        cells.numbers("p", "p", "of the paired t-test", write=cells.p_value),
        cells.numbers("p (Holm)", "holm", "corrected for their number", write=cells.p_value),
        cells.words("Differs", "differs", write=cells.yes_or_no),
    ]
    return cells.table(
        name, caption, records, fields, quiet=lambda row: not row["differs"], opened=True
    )


def _own(network: Network, comparison: Comparison) -> dict[str, str]:
    """Return the facts of a network that are not those of the whole comparison."""
    common = comparison.facts.items()
    return {key: value for key, value in network.facts.items() if (key, value) not in common}


def _name(text: str) -> str:
    return clean(text, longest=_LONGEST)


def _hundredths(value: Any) -> str:
    """Write a share, or a difference of two, in hundredths."""
    return fixed(100 * value, 1)
