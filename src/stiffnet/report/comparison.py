"""What a page and a terminal show of networks that were compared on the same images."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go
from rich.console import Group, RenderableType

from stiffnet.report import cells
from stiffnet.report.blocks import Block, Facts, Findings, Part, Plot, Section, Table, Words
from stiffnet.report.canvas import canvas
from stiffnet.report.step_axis import marker_size, networks_figure, step_layout, told_line
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
    percent,
    plot_text,
    strong,
    tenths,
    with_error,
)
from stiffnet.report.theme import LIGHT, SERIES
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
    figure = steps_figure([first, *(other for _, other in matched)])
    drawn = [Plot(f"means{end}", figure, "Mean NSI by step", "Mean NSI", switch=True)]
    for i, (pair, _) in enumerate(matched):
        title, label = (
            f"{_name(pair.second)} minus {_name(pair.first)}",
            "Difference of NSI by step",
        )
        drawn.append(Plot(f"differences{end}-{i}", difference_figure(pair), label, title))
    text = (
        "Above, the mean NSI of each step over the images. Below, its difference from the first "
        "network, paired image by image, with its 95 % interval. Filled points differ "
        "significantly after Holm's correction for the number of steps; hollow ones do not."
    )
    return [Section(f"steps{end}", "Which steps differ", "Steps", text, drawn)]


def _stages(comparison: Comparison, end: str) -> Section:
    figure = share_figure(comparison.networks)
    text = (
        "How the NSI of an image, summed over all steps, is divided among the stages. Stages can "
        "be compared even where steps cannot."
    )
    block = Plot(f"shares{end}", figure, "Share of each stage in the sum of NSI")
    return Section(f"stages{end}", "Where in the network it is stiff", "Stages", text, [block])


def pair_tables(comparison: Comparison) -> list[tuple[str, list[Table]]]:
    """Return the numbers of every pair, of its steps and of its stages, each under its name."""
    return [
        (
            f"{_name(pair.second)} against {_name(pair.first)}",
            [_differences_table(pair, of) for of in ("steps", "stages") if getattr(pair, of)],
        )
        for pair in comparison.pairs
    ]


def _differences_table(pair: Pair, of: str) -> Table:
    found: Sequence[Difference] = getattr(pair, of)
    heading, caption = "Step", "NSI of the steps"
    if of == "stages":
        heading, caption = "Stage", "Shares of the stages"
    places = decimals_for([value for each in found for value in (each.first, each.second)])
    records = [
        vars(each) | {"difference": each.difference, "differs": each.differs} for each in found
    ]
    fields = [
        cells.words(heading, "name"),
        *([cells.words("In the other", "other")] if pair.matched == "position" else []),
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
        of, caption, records, fields, quiet=lambda row: not row["differs"], opened=True
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


def steps_figure(networks: Sequence[Network]) -> go.Figure:
    """Mean NSI by step of networks whose steps correspond; named as in the first."""
    names = networks[0].steps
    return networks_figure([(each.name, names, list(each.nsi)) for each in networks], "mean NSI")


def difference_figure(pair: Pair) -> go.Figure:
    """Difference of NSI by step with its interval; filled where it is significant."""
    found = pair.steps
    names = [each.name for each in found]
    layout = step_layout(names, "difference of NSI")
    layout["yaxis"] |= {"rangemode": "normal", "zeroline": True, "zerolinecolor": LIGHT["axis"]}
    colour = LIGHT["series0"]
    values = [each.difference for each in found]
    told = [
        f"{number(each.difference)} ({number(each.low)} to {number(each.high)})<br>"
        f"{'differs' if each.differs else 'does not differ'} significantly"
        for each in found
    ]
    marker = {
        "size": marker_size(names, few=8),
        "color": [colour if each.differs else LIGHT["paper"] for each in found],
        "line": {"color": colour, "width": 1.5},
    }
    trace = told_line(names, values, "difference", 0, told, marker=marker, showlegend=False)
    trace.update(
        mode="markers",
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [0 if d.high is None else d.high - d.difference for d in found],
            "arrayminus": [0 if d.low is None else d.difference - d.low for d in found],
            "color": colour,
            "thickness": 1.4,
            "width": 3,
        },
    )
    layout["margin"] |= {"t": 24}
    return go.Figure(trace, layout=layout)


def share_figure(networks: Sequence[Network]) -> go.Figure:
    """Bars for the share of each stage, the networks beside one another."""
    layout = canvas(height=400, y="share of the sum of NSI")
    layout["margin"] |= {"t": 48}
    most = max(len(network.shares) for network in networks)
    layout["xaxis"] |= {
        "tickmode": "array", "tickvals": list(range(most)), "showgrid": False,
        "ticktext": [f"stage {stage}" for stage in range(most)],
    }  # fmt: skip
    layout["yaxis"] |= {"tickformat": ".0%", "rangemode": "tozero"}
    layout |= {"barmode": "group", "bargap": 0.3}
    figure = go.Figure(layout=layout)
    for order, network in enumerate(networks):
        counts = list(Counter(network.stages).values())
        told = [
            f"{percent(share)}, in {steps} step{'' if steps == 1 else 's'}"
            for share, steps in zip(network.shares, counts, strict=True)
        ]
        name = plot_text(network.name, longest=40)
        figure.add_bar(
            x=list(range(len(counts))),
            y=list(network.shares),
            name=name,
            marker={"color": LIGHT[f"series{order % SERIES}"]},
            customdata=[[name, text] for text in told],
            hovertemplate="<b>%{customdata[0]}</b><br>%{customdata[1]}<extra></extra>",
        )
    return figure
