"""A network's forms side by side, as it was trained and folded: a section, a table, a sentence."""

from rich.console import Group, RenderableType

from stiffnet.report.blocks import Part, Section, Table, Words
from stiffnet.report.cells import sheet
from stiffnet.report.terminal import sheet_lines, spoken
from stiffnet.report.text import (
    MISSING,
    clean,
    count,
    finite,
    images,
    magnitude,
    number,
    percent,
    strong,
    tenths,
)
from stiffnet.results.fold import Form, Forms


def terminal(forms: Forms) -> RenderableType:
    """Return what a terminal shows of the forms."""
    return Group(sheet_lines(forms_table(forms)), spoken(saving(forms)))


def part(forms: Forms, title: str, end: str) -> Part:
    """Return what the forms of a network put on a page."""
    text = (
        "Constant attention is multiplied into the weights, and the plain backbone is left. Fused, "
        "so is every norm, into the layer before it."
    )
    note = (
        f"Each form was run on {images(forms.tested)} for its accuracy. Images/s: median of "
        f"{count(forms.passes)} passes of {images(forms.batch)}, the forms in turns. Scaled error: "
        "largest difference from the outputs as trained, over the largest of them."
    )
    blocks = [Words(saving(forms), "verdict"), forms_table(forms), Words(note, "note")]
    heading = "Folded: the same network, and less of it"
    return Part("", [Section(f"folded{end}", heading, "Folded", text, blocks)])


def forms_table(shown: Forms) -> Table:
    """Return one row a quantity, and one column a form."""
    forms = shown.forms
    rows = (
        ("Accuracy", [tenths(form.accuracy) for form in forms]),
        ("Parameters", [count(form.parameters) for form in forms]),
        ("MACs an image", [count(form.macs) for form in forms]),
        ("Images/s", [count(form.rate) for form in forms]),
        ("Scaled error", [magnitude(form.scaled_error) for form in forms]),
    )
    heads = ["", *(clean(form.name, longest=40) for form in forms)]
    return sheet("The network in its forms", heads, [(name, *texts) for name, texts in rows])


def saving(shown: Forms) -> str:
    """Say what the second form saves of the first, what it leaves alone, and how fast others are.

    >>> from stiffnet.report.text import plain
    >>> forms = Form("trained", 0.9, 1000, 5, 10.0), Form("folded", 0.9, 950, 5, 12.0, 3e-7)
    >>> plain(saving(Forms(forms, 20, 8, 5)))
    'Folded, it has 50 parameters fewer (5.0 %), takes 1.20 times as many images a second and \
is as accurate; outputs differ by 3e-07 of the largest.'
    """
    first, second, *others = shown.forms
    fewer = first.parameters - second.parameters
    share = percent(fewer / first.parameters) if first.parameters else MISSING
    said = (
        f"{clean(second.name, longest=40).capitalize()}, it has "
        f"{strong(f'{count(fewer)} parameters fewer')} ({share}), takes "
        f"{strong(f'{_times(second, first)} times')} as many images a second"
    )
    for form in others:
        said += f" ({clean(form.name, longest=40)}: {strong(_times(form, first))})"
    right = f"is right on {strong(tenths(second.accuracy))} of the images instead of "
    if first.accuracy == second.accuracy:
        said += " and is as accurate"
    else:
        said += f" and {right}{tenths(first.accuracy)}"
    return f"{said}; outputs differ by {magnitude(second.scaled_error)} of the largest."


def _times(form: Form, first: Form) -> str:
    known = finite(form.rate) and finite(first.rate)
    return number(form.rate / first.rate, 3) if known else MISSING  # type: ignore[operator]
