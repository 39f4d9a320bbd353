"""What a page and a terminal show of a demo: the story for newcomers, from stiffness to folding."""

from collections.abc import Sequence

import plotly.graph_objects as go
from rich.console import Group, RenderableType
from rich.text import Text

from stiffnet.report import (
    blocks,
    comparison,
    demo_findings as say,
    fold,
    ode_findings,
    ode_plots,
    spectra,
    spectra_findings,
    stiffness,
    training,
)  # fmt: skip
from stiffnet.report.blocks import Block, Findings, Part, Plot, Section, Table, Words
from stiffnet.report.canvas import canvas
from stiffnet.report.cells import sheet
from stiffnet.report.step_axis import networks_figure
from stiffnet.report.stiffness_plots import nsi_figure
from stiffnet.report.terminal import sheet_lines, spoken
from stiffnet.report.text import (
    capital,
    clean,
    cleaned,
    count,
    fixed,
    images,
    magnitude,
    number,
    plot_text,
    tenths,
    with_error,
)
from stiffnet.report.theme import LIGHT
from stiffnet.results.demo import DemoNetwork, DemoReport, TimedForm

HEADING = "How stiff a network is, and what attention and folding do about it"


def terminal(report: DemoReport) -> RenderableType:
    """Return what a terminal shows of a demo."""
    title = Text(clean(report.title, longest=200), style="bold")
    said = [*say.answer(report), say.one_seed(report)]
    return Group(title, sheet_lines(networks_table(report)), *map(spoken, said))


def part(report: DemoReport, title: str, end: str) -> Part:
    """Return what a demo puts on a page."""
    ledes = [Words(sentence, "lede") for sentence in say.answer(report)]
    caution = Words(say.one_seed(report), "warning")
    shown = [*ledes, blocks.Tiles(_tiles(report)), networks_table(report), caution]
    sections = (_ode, _where, _eigenvalues, _attention, _folding, _training)
    return Part(
        kind="demo",
        articles=[(title, shown)],
        sections=[draw(report, f"demo{end}") for draw in sections],
        tables=_tables(report),
        reading=["stiffness", "comparison", "spectra", "fold"],
        facts=[(title, blocks.Facts(cleaned(report.facts)))],
    )


def _tiles(report: DemoReport) -> list[tuple[str, str, str]]:
    plain, constant = report.networks[0], report.networks[-1]
    gated, folded = report.form(constant.name), report.forms[len(report.networks)]
    before, after = number(plain.before.tns), number(plain.after.tns)
    return [
        ("Stiffness (TNS)", after, f"{say.name_of(plain)}, trained; {before} before"),
        (f"Speed with {say.name_of(gated)}", f"{fixed(gated.ratio, 2)} ×", "the plain network's"),
        ("Speed when folded", f"{fixed(folded.ratio, 2)} ×", "the plain network's"),
        ("Outputs differ by", magnitude(folded.scaled_error), "of the largest, folded"),
    ]


def networks_table(report: DemoReport) -> Table:
    """Return one row a network: its accuracy, and its stiffness before and after training."""
    lines = []
    for network in report.networks:
        both = (network.before, network.after)
        totals = [with_error(each.tns, each.tns_se) for each in both]
        lines.append((say.name_of(network), tenths(network.after.accuracy), *totals))
    heads = ("", "accuracy", "TNS before", "TNS after")
    return sheet("The networks before and after training", heads, lines)


def _ode(report: DemoReport, place: str) -> Section:
    text = (
        "A differential equation is stiff when its solution changes slowly, and a perturbation of "
        "it dies out fast. Forward Euler, y ← y + h f(y), multiplies the part of an error that "
        "belongs to the eigenvalue λ by 1 + h λ in each step. With long steps that is below −1: "
        "the error changes sign, and grows, though the equation damps it. A residual network "
        "computes x ← x + f(x), block after block, which is forward Euler with a step of size 1."
    )
    if report.euler.problem == "eq8":
        text += " The example is y′ = −1000 y + 3000 − 2000 exp(−t), y(0) = 0."
    name = clean(report.euler.title, longest=80)
    found = ode_findings.on_euler(report.euler, name)
    drawn = [
        Plot(f"{place}-ode-{kind}", figure(report.euler), name, heading)
        for kind, figure, heading in (
            ("first", ode_plots.first_steps_figure, "The first steps"),
            ("error", ode_plots.error_figure, "The error in time"),
        )
    ]
    shown = [Words(capital(found), "verdict"), blocks.Box("pair", drawn)]
    return Section(f"{place}-ode", "What stiffness is", "Stiffness", text, shown)


def _where(report: DemoReport, place: str) -> Section:
    text = (
        "The index of a step (NSI) is the size of what its branch would add, divided by the size "
        "of the state it is added to. Total neural stiffness (TNS) is large where one step of a "
        "stage stands out from its neighbours. Hollow points are steps that TNS leaves out: the "
        "first of each stage. Dark bands are the middle half of the images."
    )
    items: list[tuple[str, Sequence[Block]]] = [
        (say.name_of(network), _network(network, f"{place}-nsi-{i}"))
        for i, network in enumerate(report.networks)
    ]
    shown = [blocks.Gallery(f"{place}-network", "Network", items)]
    return Section(f"{place}-where", "Where this network is stiff", "Where", text, shown)


def _network(network: DemoNetwork, place: str) -> list[Block]:
    views = [
        report.view(f"{when} training")
        for report, when in ((network.before, "before"), (network.after, "after"))
    ]
    said = f"{say.change(network)} {say.where(network)}"
    drawn = Plot(place, nsi_figure(views), f"NSI by step of {say.name_of(network)}", switch=True)
    return [Words(said, "verdict"), drawn]


def _eigenvalues(report: DemoReport, place: str) -> Section:
    found = report.spectrum
    [step] = found.steps
    name = clean(step, longest=120)
    shown = spectra_findings.shown_of(found)
    text = (
        "NSI says how large a step is, and eigenvalues say what it does to a perturbation. These "
        f"are all eigenvalues of the branch of {name}, {say.which(report, step)}, on "
        f"{images(len(found.images))}. In the disc |1 + λ| ≤ 1, a step of size 1 damps."
    )
    said = [spectra_findings.headline(shown), *say.eigenvalues(found)]
    drawn = [Findings(said), spectra.pictures(found.spectra[step], name, f"-{place}")]
    heading = "One step, eigenvalue by eigenvalue"
    return Section(f"{place}-eigenvalues", heading, "Eigenvalues", text, drawn)


def _attention(report: DemoReport, place: str) -> Section:
    gated = report.networks[1:]
    text = (
        "A module of attention multiplies what a branch adds, and so chooses the step size. SE and "
        "StepNet choose it anew for every image; ASR learns constants. What is added to the state "
        "is the increment, and its size over NSI is the mean step size."
    )
    said = [
        sentence
        for network, pair in zip(gated, report.comparison.pairs, strict=True)
        for sentence in (say.chosen(network), comparison.wholes(pair))
    ]
    each = [
        (network.name, [step.name for step in network.after.steps], say.step_sizes(network))
        for network in report.networks
    ]
    sizes = networks_figure(each, "step size")
    means = comparison.steps_figure(report.comparison.networks)
    shown = [
        Findings(said),
        Words(say.NETWORKS_NOT_MODULES, "warning"),
        Plot(f"{place}-sizes", sizes, "Mean step size by step", "Mean step size, trained",
             switch=True),
        Plot(f"{place}-means", means, "Mean NSI by step", "Mean NSI, trained", switch=True),
    ]  # fmt: skip
    return Section(f"{place}-attention", "What attention did", "Attention", text, shown)


def _folding(report: DemoReport, place: str) -> Section:
    text = (
        "Constant attention is a factor for each channel, and the layer before it can take the "
        "factor in: what is left is the plain network, with other weights. Fused, every norm goes "
        "into the layer before it, too."
    )
    tested = report.networks[-1].after.samples
    passes = len(report.forms[-1].ratios)
    note = (
        f"Accuracy on {images(tested)}. Speed: {count(passes)} passes of {images(report.batch)} of "
        "each form, each between two passes of the plain network and compared with their mean. "
        "Points are medians; bars are their 95 % intervals. Scaled error: largest difference from "
        "the outputs as trained, over the largest of them."
    )
    label = "Speed beside the plain network"
    shown = [
        Findings([*say.proof(report), *say.speeds(report)]),
        Plot(f"{place}-speeds", speeds_figure(report.forms), label, label),
        forms_table(report.forms),
        Words(note, "note"),
    ]
    return Section(f"{place}-folding", "What folding gave back", "Folding", text, shown)


def forms_table(forms: Sequence[TimedForm]) -> Table:
    """Return one row a quantity, and one column a form."""
    rows = (
        ("Accuracy", [tenths(form.accuracy) for form in forms]),
        ("Parameters", [count(form.parameters) for form in forms]),
        ("MACs an image", [count(form.macs) for form in forms]),
        ("Images/s", [count(form.rate) for form in forms]),
        ("Scaled error", [magnitude(form.scaled_error) for form in forms]),
    )
    heads = ["", *(clean(form.name, longest=40) for form in forms)]
    return sheet("The network in its forms", heads, [(name, *texts) for name, texts in rows])


def _training(report: DemoReport, place: str) -> Section:
    runs = [(network.log, say.name_of(network)) for network in report.networks]
    return training.curves(runs, f"{place}-training")


def _tables(report: DemoReport) -> list[tuple[str, Sequence[Block]]]:
    """Return the numbers of every network, of what differs, of the step, and of the fold."""
    networks: list[tuple[str, Sequence[Block]]] = [
        (say.name_of(network), stiffness.tables(network.after.view()))
        for network in report.networks
    ]
    steps = spectra.steps_table(spectra_findings.shown_of(report.spectrum))
    return [
        *networks,
        *comparison.pair_tables(report.comparison),
        ("eigenvalues", [steps]),
        ("fold", fold.tables(report.fold)),
    ]


def speeds_figure(forms: Sequence[TimedForm]) -> go.Figure:
    """How fast every form is beside the plain network, with the interval of its median."""
    names = [plot_text(form.name, longest=40) for form in forms]
    layout = canvas(height=110 + 44 * len(forms), x="speed, times the plain network's")
    layout["margin"] |= {"t": 16}
    layout["yaxis"] |= {
        "tickmode": "array", "tickvals": list(range(len(forms))), "ticktext": names,
        "autorange": "reversed", "showgrid": False,
    }  # fmt: skip
    layout["hovermode"] = "closest"
    ratios = [form.ratio for form in forms]
    spans = [form.interval or (form.ratio, form.ratio) for form in forms]
    told = [
        f"{fixed(form.ratio, 2)} times ({fixed(low, 2)} to {fixed(high, 2)})<br>"
        f"{number(form.rate)} images/s, accuracy {tenths(form.accuracy)}"
        for form, (low, high) in zip(forms, spans, strict=True)
    ]
    figure = go.Figure(layout=layout)
    figure.add_vline(x=1, line={"color": LIGHT["axis"], "width": 1, "dash": "dot"})
    figure.add_scatter(
        x=ratios,
        y=list(range(len(forms))),
        mode="markers",
        name="speed",
        showlegend=False,
        marker={"size": 11, "color": LIGHT["series0"]},
        error_x={
            "type": "data", "symmetric": False, "thickness": 1.6, "width": 5,
            "array": [high - ratio for (_, high), ratio in zip(spans, ratios, strict=True)],
            "arrayminus": [ratio - low for (low, _), ratio in zip(spans, ratios, strict=True)],
            "color": LIGHT["series0"],
        },
        customdata=[list(pair) for pair in zip(names, told, strict=True)],
        hovertemplate="<b>%{customdata[0]}</b><br>%{customdata[1]}<extra></extra>",
    )  # fmt: skip
    return figure
