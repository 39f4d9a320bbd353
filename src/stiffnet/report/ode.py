"""What a page and a terminal show of differential equations."""

from collections.abc import Callable, Sequence
from typing import Any

from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.text import Text

from stiffnet.report import blocks, ode_findings as say, ode_plots as plots, ode_tables as tables
from stiffnet.report.blocks import Block, Box, Part, Plot, Section, Table
from stiffnet.report.terminal import sheet_lines, spoken
from stiffnet.report.text import capital, clean, cleaned, count, counted, number, strong
from stiffnet.report.theme import SERIES
from stiffnet.results import ode

Given = Sequence[tuple[Any, str]]
"""Records of one kind, each with what it is called."""


def parts(given: Given) -> list[Part]:
    """Return what results put on a page: a section for each kind of them."""
    named = [(record, _name(record, title)) for record, title in given]
    kinds = _by_kind(named)
    sentences = [line for kind, those in kinds for line in _SAID[kind](those)]
    if len(named) == 1:
        title = named[0][1]
        said: list[Block] = [blocks.Words(sentences[0], "lede")]
    else:
        title = "Stiffness in differential equations"
        lede = (
            "The stiffness of these equations can be computed exactly, so that what the papers say "
            f"about it can be checked: {strong(f'{len(named)} results')}."
        )
        said = [blocks.Words(lede, "lede"), blocks.Findings(sentences)]
    facts = {key: value for record, _ in named for key, value in record.facts.items()}
    return [
        Part(
            kind="differential equation",
            articles=[(title, said)],
            sections=[section for kind, those in kinds for section in _SECTIONS[kind](those)],
            tables=[(title, [table for kind, those in kinds for table in _tables(kind, those)])],
            reading=["ode"],
            facts=[(title, blocks.Facts(cleaned(facts)))],
        )
    ]


def terminal(record: ode.OdeRecord) -> RenderableType:
    """Return what a terminal shows of one result."""
    return together([record])


def together(records: Sequence[ode.OdeRecord]) -> RenderableType:
    """Return what a terminal shows of several results: sentences and tables for each kind."""
    lines: list[RenderableType] = []
    for kind, those in _by_kind([(record, _name(record, "")) for record in records]):
        lines += [spoken(sentence) for sentence in _SAID[kind](those)]
        for table in _tables(kind, those, few=True):
            lines += [Text(""), Text(table.caption, style="bold"), sheet_lines(table, light=True)]
        lines.append(Text(""))
    return Group(*lines[:-1])


def _name(record: ode.OdeRecord, title: str) -> str:
    return clean(title or record.title, longest=200)


def _by_kind(given: Given) -> list[tuple[type[ode.OdeRecord], Given]]:
    """Return results of one kind together, in the order of a page."""
    groups = {kind: [pair for pair in given if isinstance(pair[0], kind)] for kind in _SECTIONS}
    return [(kind, those) for kind, those in groups.items() if those]


def _solutions(given: Given) -> list[Section]:
    items: list[tuple[str, Sequence[Block]]] = []
    for i, (solution, title) in enumerate(given):
        components, steps = solution.states.shape[1], len(solution.steps)
        first = f"The first {SERIES} of {components} components. " if components > SERIES else ""
        drawn = [
            Plot(f"ode-index-{i}", plots.index_figure(solution), title, "SI and SAI in time",
                 _thinned(steps)),
            Plot(f"ode-size-{i}", plots.size_figure(solution), title, "The steps of the solver"),
            Plot(f"ode-state-{i}", plots.state_figure(solution), title, "The solution",
                 f"{first}Each is divided by its largest size."),
        ]  # fmt: skip
        items.append((title, [Box("pair", drawn)]))
    text = (
        "SI is how fast a perturbation of the state would change, SAI is how fast the state "
        "itself changes. Where SI is far above SAI the problem is stiff: the solution is slow, "
        "and an explicit method may still not take long steps."
    )
    shown = [_gallery("ode-solution", "Problem", items)]
    return [Section("ode-solutions", "Solutions, and how stiff they are", "Solutions", text, shown)]


def _euler(given: Given) -> list[Section]:
    items: list[tuple[str, Sequence[Block]]] = []
    for i, (comparison, title) in enumerate(given):
        bound = Markup("The bound is <b>{}</b>").format(f"{comparison.limit:.4g}")
        near = [
            Plot(f"ode-factor-{i}", plots.amplification_figure(comparison), title,
                 "What one step does to an error"),
            Plot(f"ode-first-{i}", plots.first_steps_figure(comparison), title, "The first steps"),
            Plot(f"ode-error-{i}", plots.error_figure(comparison), title, "The error in time"),
        ]  # fmt: skip
        items.append((title, [blocks.Words(bound, "verdict"), Box("pair", near)]))
    text = (
        "A step of size h multiplies the error of each mode by 1 + h λ. It shrinks if that is "
        "below one in size: for a real, negative λ, if h is below 2/|λ|."
    )
    shown = [_gallery("ode-comparison", "Problem", items)]
    return [Section("ode-euler", "Forward Euler, below and above its bound", "Euler", text, shown)]


def _steps(given: Given) -> list[Section]:
    stability = number(given[0][0].stability)
    text = (
        "Runge–Kutta–Fehlberg chooses each step by an estimate of its error. It also has to stay "
        f"stable: for real eigenvalues, an error decays only while h · SI is below {stability}. "
        "On the line, stability limits the step; well below it, accuracy does."
    )
    note = "Steps in the first thousandth of the time are left out."
    both = Plot("ode-steps", plots.steps_figure(given), "Steps of RKF45", "Step against SI", note)
    items: list[tuple[str, Sequence[Block]]] = []
    for i, (record, title) in enumerate(given):
        some = _thinned(len(record.steps))
        in_time = plots.step_time_figure(record)
        items.append((title, [Plot(f"ode-step-{i}", in_time, title, "Step in time", some)]))
    drawn = [both, _gallery("ode-rkf45", "Problem", items)]
    return [Section("ode-adaptive", "Steps of an adaptive method", "Steps", text, drawn)]


def _theorem(given: Given) -> list[Section]:
    text = (
        "For a symmetric Jacobian, SAI / SI should tend to √c as the fastest eigenvalue grows, "
        "with c the share of the state's square that lies along its eigenvector. It does if the "
        "time between observations tends to zero first, and not if that time is fixed, or if the "
        "fast part of the solution has died out."
    )
    heading = "Theorem 2: does SAI follow SI?"
    return [
        Section(f"ode-theorem2-{i}", heading, "Theorem 2", text,
                [Plot(f"ode-ratio-{i}", plots.theorem_figure(check), title, "SAI / SI")])
        for i, (check, title) in enumerate(given)
    ]  # fmt: skip


def _encounters(given: Given) -> list[Section]:
    text = (
        "An encounter lasts while the smallest of the three distances is below a threshold. The "
        "paper reports that 91.4 % of the runs contain an encounter and that 4.2 % of the "
        "intervals do, without a definition of either. Which shares are found depends on the "
        "threshold and on how long a run is."
    )
    items = [
        (title, [Plot(f"ode-shares-{i}", plots.shares_figure(record), title,
                      "Shares by the definition of an encounter",
                      counted(len(record.closest), "run") + ".")])
        for i, (record, title) in enumerate(given)
    ]  # fmt: skip
    note = "Along a line the threshold grows. The star is the paper, whose 4.2 % are of intervals."
    both = Plot("ode-trade", plots.trade_figure(given), "Three bodies",
                "Which definition gives both shares?", note)  # fmt: skip
    drawn = [_gallery("ode-duration", "Duration", items), both]
    return [Section("ode-encounters", "Three bodies", "Three bodies", text, drawn)]


def _tables(kind: type[ode.OdeRecord], given: Given, *, few: bool = False) -> list[Table]:
    if kind is ode.OdeSolution:
        return [tables.solutions_table(given)]
    if kind is ode.AdaptiveSteps:
        return [tables.steps_table(given)]
    several = [(record, capital(title), f"-{i}") for i, (record, title) in enumerate(given)]
    if kind is ode.EulerComparison:
        return [tables.euler_table(record, title, end=end) for record, title, end in several]
    if kind is ode.Theorem2Check:
        return [tables.theorem_table(one, title, few=few, end=end) for one, title, end in several]
    every = [tables.encounters_table(record, title, end=end) for record, title, end in several]
    return [tables.durations_table(given), *([] if few else every)]


_SECTIONS: dict[type[ode.OdeRecord], Callable[[Given], list[Section]]] = {
    ode.OdeSolution: _solutions,
    ode.EulerComparison: _euler,
    ode.AdaptiveSteps: _steps,
    ode.Theorem2Check: _theorem,
    ode.Encounters: _encounters,
}
_SAID: dict[type[ode.OdeRecord], Callable[[Given], list[str]]] = {
    ode.OdeSolution: lambda given: [say.on_solutions(given)],
    ode.EulerComparison: lambda given: [capital(say.on_euler(*pair)) for pair in given],
    ode.AdaptiveSteps: lambda given: [say.on_steps(given)],
    ode.Theorem2Check: lambda given: [say.on_theorem(check) for check, _ in given],
    ode.Encounters: lambda given: [capital(say.on_encounters(*pair)) for pair in given],
}


def _gallery(name: str, label: str, items: Sequence[tuple[str, Sequence[Block]]]) -> Block:
    """Return boxes to choose from, or the only one as it is."""
    return blocks.Gallery(name, label, items) if len(items) > 1 else Box("module", items[0][1])


def _thinned(many: int) -> str:
    most = plots.POINTS
    return f"{count(most)} of {count(many)} steps, evenly chosen." if many > most else ""
