"""What a page and a terminal show of spectra: of several steps and images, or of one."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.table import Table

from stiffnet.report import blocks, cells, spectra_plots as plots
from stiffnet.report.spectra_findings import SYMBOLS, Shown, findings, headline, shown_of
from stiffnet.report.terminal import Lines, told
from stiffnet.report.text import clean, cleaned, count, number, percent, shape
from stiffnet.results.spectra import Seen, SpectrumReport
from stiffnet.results.spectrum import Spectrum

_BAR = 10  # cells of a terminal
_NAME = 24  # cells; a longer name is shortened in its middle


def terminal(result: SpectrumReport | Spectrum) -> RenderableType:
    """Return what a terminal shows of spectra."""
    report = _report(result)
    shown = shown_of(report)
    title = clean(report.title, longest=120)
    return Group(told(title, headline(shown), findings(shown)), steps_lines(shown))


def _report(result: SpectrumReport | Spectrum) -> SpectrumReport:
    """One spectrum is a report of one step and image."""
    if isinstance(result, SpectrumReport):
        return result
    return SpectrumReport((Seen(0),), {result.step: (result,)}, facts=result.facts)


def part(result: SpectrumReport | Spectrum, title: str, end: str) -> blocks.Part:
    """Return what spectra put on a page."""
    report = _report(result)
    shown = shown_of(report)
    lede, tiles = blocks.Words(headline(shown), "lede"), blocks.Tiles(_tiles(shown))
    said = findings(shown)
    tables = [steps_table(shown)]
    tables += [labels_table(shown.labels, report.noun)] if shown.labels else []
    tables += [relations_table(shown.relations, report.noun)] if shown.relations else []
    return blocks.Part(
        kind="spectrum",
        articles=[(title, [lede, tiles, *([blocks.Findings(said)] if said else [])])],
        sections=_sections(shown, end),
        tables=[(title, tables)],
        reading=["spectra"],
        facts=[(title, blocks.Facts(cleaned(report.facts)))],
    )


def _tiles(shown: Shown) -> list[tuple[str, str, str]]:
    noun = shown.report.noun
    tiles = [
        ("|S|", number(shown.mean("absolute_index_mean")), f"mean over steps and {noun}"),
        ("P, negative share", percent(shown.mean("negative_share_mean")), "of eigenvalues"),
        ("Outside Euler's disc", percent(shown.mean("outside_share")), "of eigenvalues"),
    ]
    worst = shown.stiffest
    if worst is not None:
        step = clean(worst["step"], longest=40)
        tiles.append(("Largest ζ_SI", number(worst["real_extent_mean"]), f"at {step}"))
    return tiles


def _sections(shown: Shown, end: str) -> list[blocks.Section]:
    report = shown.report
    drawn = [
        blocks.Plot(f"{kind}{end}", figure(report), f"{title}, by step", title)
        for kind, title, figure in (
            ("index", "S: largest over smallest real part", plots.index_figure),
            ("share", "P, and the share outside of Euler's disc", plots.share_figure),
            ("ends", "Both ends of the real axis", plots.ends_figure),
        )
    ]
    text = (
        f"All eigenvalues of a step on {shown.images}, and the disc in which forward Euler with "
        f"step size 1 damps. Of more than {count(plots.POINTS)} points, the extremes and an even "
        "choice are drawn; the numbers are of all."
    )
    heading, panels = "Eigenvalues in the complex plane", [_panels(shown, end)]
    found = [blocks.Section(f"planes{end}", heading, "Eigenvalues", text, panels)]
    if len(report.steps) > 1:
        text = (
            f"The line is the median over {report.noun}, the band goes from the smallest to the "
            "largest of them. Gaps are steps that change the shape, or where a figure is not "
            "defined."
        )
        heading = "From the first step to the last"
        found.append(blocks.Section(f"depth{end}", heading, "Depth", text, drawn))
    return found


def _panels(shown: Shown, end: str) -> blocks.Gallery:
    """Return the pictures of every step, of which one is shown at a time."""
    items: list[tuple[str, list[blocks.Block]]] = []
    # Those that change the shape have no picture, and come last.
    for i, row in enumerate(sorted(shown.steps, key=lambda row: not row["count"])):
        spectra, step = shown.report.spectra[row["step"]], clean(row["step"], longest=120)
        verdict = _verdict(row, spectra, shown.report.noun)
        said: list[blocks.Block] = [blocks.Words(verdict, "verdict")]
        if row["count"]:
            said.append(pictures(spectra, step, f"{end}-{i}"))
        items.append((step, said))
    return blocks.Gallery(f"step{end}", "Step", items)


def pictures(spectra: Sequence[Spectrum], step: str, end: str) -> blocks.Box:
    """Return the eigenvalues of a step in the plane and, where all are known, their real parts."""
    plane, label = plots.plane_figure(spectra), f"Eigenvalues of {step}"
    drawn = [blocks.Plot(f"plane{end}", plane, label, "In the plane")]
    if all(found.negative_share is not None for found in spectra):
        real, label = plots.real_parts_figure(spectra), f"Real parts of {step}"
        drawn.append(blocks.Plot(f"real{end}", real, label, "Real parts that are not zero"))
    return blocks.Box("pair", drawn)


def _verdict(row: dict[str, Any], spectra: Sequence[Spectrum], noun: str) -> Markup:
    """Say how many eigenvalues a step has, and what stands out of them."""
    if not row["count"]:
        text = Markup(
            "The shape changes from <b>{}</b> to <b>{}</b>, so there are no eigenvalues. The "
            "largest singular value is <b>{}</b>."
        )
        return text.format(shape(row["shape"]), shape(row["shape_out"]), number(row["norm"]))
    text = Markup("<b>{}</b> eigenvalues ({}). S <b>{}</b>, ζ_SI <b>{}</b>, ρ <b>{}</b>")
    said = text.format(
        count(row["count"]), row["method"], number(row["stiffness_index_mean"]),
        number(row["real_extent_mean"]), number(row["radius_mean"]),
    )  # fmt: skip
    if any(found.negative_share is None for found in spectra):
        return said + Markup(". Those at the ends are shown.")
    shares = Markup(", P <b>{}</b>, outside <b>{}</b>.")
    said += shares.format(percent(row["negative_share_mean"]), percent(row["outside_share"]))
    zeros = sum(int((found.eigenvalues == 0).sum()) for found in spectra) / len(spectra)
    if zeros >= 1 and "planes" not in row["method"]:
        said += Markup(" <b>{}</b> are zero (mean over {}).").format(count(zeros), noun)
    return said


def steps_table(shown: Shown) -> blocks.Table:
    """One row a step, with everything that is known of it."""
    records, worst = shown.steps, shown.stiffest
    noun = shown.report.noun
    over = f"mean over the {noun}"
    spread = f"standard deviation over the {noun}"
    furthest = None if worst is None else worst["real_extent_mean"]
    fields = [
        cells.words("Step", "step"),
        cells.numbers("ζ_SI", "real_extent_mean", f"largest |Re λ|, {over}", longest=furthest),
        cells.numbers("S", "stiffness_index_mean", f"max Re λ / min Re λ, {over}"),
        cells.numbers("sd", "stiffness_index_std", spread),
        cells.numbers("|S|", "absolute_index_mean", over),
        cells.numbers("Defined", "defined", f"{noun} on which S is defined", write=cells.whole),
        cells.numbers("P", "negative_share_mean", f"share of Re λ < 0, {over}", write=percent),
        cells.numbers("sd of P", "negative_share_std", spread, write=percent),
        cells.numbers("Outside", "outside_share", "share outside of Euler's disc", write=percent),
        cells.numbers("max Re", "max_real", over),
        cells.numbers("min Re", "min_real", over),
        cells.numbers("ρ", "radius_mean", f"largest |λ|, {over}"),
        cells.numbers("‖J‖₂", "norm", f"largest singular value, {over}"),
        cells.numbers("‖J‖₂/ρ", "non_normality", "1 for a normal Jacobian"),
        cells.numbers("Condition", "condition", "of the eigenvalue of the largest |Re λ|"),
        cells.numbers("Eigenvalues", "count", write=cells.whole),
        cells.numbers("Matrix", "inner", "rows of the matrix that was formed", write=count),
        cells.numbers("Elements", "elements", "entries of the Jacobian", write=cells.whole),
        cells.numbers("Seconds", "seconds", f"for all {noun}"),
        cells.numbers("Memory", "peak", "largest of the process meanwhile", write=_memory),
        cells.words("Method", "method"),
        cells.words("State", "shape", "shape of the state that goes in", write=shape),
        cells.words("Cut behind", "cut", "where the step was cut", longest=60),
    ]
    return cells.table(
        "steps", "Steps", records, fields, opened=True,
        note="A heading sorts by its column. Bold: the step whose eigenvalues reach furthest. "
        "Grey: the shape changes.",
        quiet=lambda row: not row["count"],
        marked=lambda row: worst is not None and row["step"] == worst["step"],
    )  # fmt: skip


def labels_table(records: Sequence[dict[str, Any]], noun: str) -> blocks.Table:
    """One row a label, over all steps that have eigenvalues."""
    over = f"mean over steps and {noun}"
    fields = [
        cells.words("Label", "name"),
        cells.numbers(noun.capitalize(), "images", write=cells.whole),
        cells.numbers("S", "stiffness_index_mean", over),
        cells.numbers("sd", "stiffness_index_std"),
        cells.numbers("|S|", "absolute_index_mean", over),
        cells.numbers("P", "negative_share_mean", over, write=percent),
        cells.numbers("ζ_SI", "real_extent_mean", over),
        cells.numbers("ρ", "radius_mean", over),
    ]
    return cells.table("labels", "Labels", records, fields)


def relations_table(records: Sequence[dict[str, Any]], noun: str) -> blocks.Table:
    """One row a figure, step and target: correlations over images."""
    fields = [
        cells.words("Step", "step"),
        cells.words("Figure", "figure", write=lambda figure: SYMBOLS[figure]),
        cells.words("With", "target"),
        cells.numbers(noun.capitalize(), "samples", write=cells.whole),
        *cells.coefficients(places=2),
        cells.words("Note", "note", write=cells.remark),
    ]
    note = (
        "Each figure's p-values are corrected for the number of steps, by Holm's method; there are "
        f"{len(SYMBOLS)} figures."
    )
    return cells.table("relations", "Relations to loss and correctness", records, fields, note=note)


def steps_lines(shown: Shown) -> Table:
    """Return one row a step, with ζ_SI as a bar; `▲` marks where it is largest."""
    records, worst = shown.steps, shown.stiffest
    longest = worst["real_extent_mean"] if worst is not None else 0.0
    names = [row["step"] for row in records]
    headings = ("ζ_SI", "S", "P", "outside", "eigenv.", "method")
    lines = Lines("", headings, steps=names, name=_NAME, bar=_BAR, longest=longest)
    for row in records:
        sizes = [number(row[key]) for key in ("real_extent_mean", "stiffness_index_mean")]
        shares = [percent(row[key]) for key in ("negative_share_mean", "outside_share")]
        numbers = [*sizes, *shares, count(row["count"]), row["method"]]
        marked = worst is not None and row["step"] == worst["step"]
        lines.add(row["step"], row["real_extent_mean"], numbers, marked=marked)
    return lines.table


def _memory(value: Any) -> str:
    return number(value, 3) if not value or value != value else f"{number(value / 2**20)} MiB"
