from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from naming import case
from report.cases import RESNET, VIT, poisoned, view
from report.payloads import PAYLOADS
from stiffnet.report.stiffness import steps_lines, summary
from stiffnet.report.text import decimals_for, fixed

BASE = view(((3, (16, 8, 8)), (2, (32, 4, 4))), samples=12, labels=3, seed=1)


def printed(*renderables, **options):
    console = Console(width=80, color_system=None, force_terminal=True, **options)
    with console.capture() as capture:
        for renderable in renderables:
            console.print(renderable)
    return capture.get()


@pytest.mark.parametrize("layout", [RESNET, VIT, ((1, (8,)),)], ids=["stages", "one", "one step"])
@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize(
    "name",
    ["{}", "features.stage3.residual_attention.blocks.{}#1", "名前" * 20],
    ids=["short", "long", "wide"],
)
def test_it_fits_eighty_columns_and_loses_no_number(layout, attention, name):
    shown = view(layout, samples=8, attention=attention, scale=30)
    steps = shown.steps.assign(step=[name.format(i) for i in range(len(shown.steps))])
    shown = replace(shown, steps=steps)
    lines = printed(summary(shown), steps_lines(shown)).splitlines()
    assert max(cell_len(line) for line in lines) <= 80
    text = "\n".join(lines)
    decimals = decimals_for(shown.steps["nsi_mean"])
    for mean in shown.steps["nsi_mean"]:
        assert fixed(mean, decimals) in text


def test_stages_are_separated_and_the_stiffest_marked():
    text = printed(steps_lines(view(RESNET, samples=8)))
    assert text.count("stage ") == 3
    assert sum(set(line.strip()) == {"─"} for line in text.splitlines()) == 3
    assert text.count("▲") == 3
    assert text.count("○") == 3


def test_a_payload_neither_acts_nor_styles():
    for payload in PAYLOADS:
        with case(payload):
            shown = poisoned(payload, BASE)
            text = printed(summary(shown), steps_lines(shown))
            assert not {c for c in text if ord(c) < 32 or 127 <= ord(c) < 160} - {"\n"}
            assert max(cell_len(line) for line in text.splitlines()) <= 80


def test_rich_markup_is_shown_and_not_obeyed():
    shown = poisoned("[bold]x[/bold] :smile:", BASE)
    assert "[bold]x[/bold] :smile:" in printed(summary(shown))
    assert "[bold]x[/bold] :smile:" in printed(steps_lines(shown))
