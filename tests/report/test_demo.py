"""What a demo's page says follows from its numbers, and nothing that a user wrote acts in it."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from observe import spectrum_cases
from report import demo_cases
from report.parsed import Parsed, strings
from report.payloads import PAYLOADS
from stiffnet.report import demo_findings as say
from stiffnet.report.demo import forms_table
from stiffnet.report.page import page as drawn
from stiffnet.report.text import MISSING, clean, plain
from stiffnet.results.demo import TimedForm

REPORT = demo_cases.report()


@pytest.fixture(autouse=True)
def _short(short_plotly):
    pass


def answered(report):
    return " ".join(plain(sentence) for sentence in say.answer(report))


@pytest.mark.parametrize(
    ("centre", "said"),
    [
        (1.0, "folded cannot be told from the plain network in speed (1.00 times it, 95 %"),
        (1.3, "folded runs at 1.30 times the plain network's speed (95 % interval 1."),
        (0.7, "folded runs at 0.70 times the plain network's speed (95 % interval 0."),
    ],
)
def test_a_speed_is_told_only_as_far_as_its_passes_tell(centre, said):
    forms = tuple(
        demo_cases.form("folded", centre, scaled_error=2e-7) if form.name == "folded" else form
        for form in REPORT.forms
    )
    report = replace(REPORT, forms=forms)
    speeds = " ".join(plain(sentence).lower() for sentence in say.speeds(report))
    assert said.lower() in speeds
    assert said.replace("folded ", "", 1) in answered(report)


def test_networks_that_are_as_fast_as_the_plain_one_are_not_called_slower():
    fast = tuple(replace(form, ratios=demo_cases.form("x").ratios) for form in REPORT.forms[1:])
    report = replace(REPORT, forms=(REPORT.forms[0], *fast))
    assert "SE and ASR(SE) cannot be told from the plain network in speed." in answered(report)
    assert "SE and ASR(SE) run at 0.80 and 0.85 times the plain" in answered(REPORT)


def test_few_passes_have_no_interval():
    forms = (*REPORT.forms[:3], demo_cases.form("folded", 1.5, passes=3), REPORT.forms[-1])
    assert "1.50 times the plain network's speed, from too few passes" in answered(
        replace(REPORT, forms=forms)
    )


def test_training_lowers_raises_or_keeps_the_stiffness():
    first = REPORT.networks[0]
    lower, higher = sorted((first.before, first.after), key=lambda each: each.tns)

    def of(before, after):
        networks = (replace(first, before=before, after=after), *REPORT.networks[1:])
        return answered(replace(REPORT, networks=networks))

    assert "Training lowered the total" in of(higher, lower)
    assert "Training raised the total" in of(lower, higher)
    assert "Training did not clearly change the total" in of(lower, lower)


def spectrum(*values):
    values = np.array(values, complex)
    found = spectrum_cases.spectrum(eigenvalues=values, count=len(values))
    return replace(spectrum_cases.report(("layer1.0",), images=1), spectra={"layer1.0": (found,)})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((-4.0, -1.0), ["0 % of the", "up to a step of 0.50", "too long, as the longest", "50 %"]),
        ((-0.5, 1.0), ["50 % of the", "up to a step of 4.0", "not too long, unlike"]),
        ((1.0, 2.0), ["100 % of the"]),
        ((-0.1 + 1j, -0.1 - 1j, -1, -1), ["not too long", "50 %", "turn more than they decay"]),
    ],
)
def test_eigenvalues_say_whether_the_step_is_too_long(values, said):
    sentences = [plain(sentence) for sentence in say.eigenvalues(spectrum(*values))]
    text = " ".join(sentences)
    for words in said:
        assert words in text
    assert len(sentences) == 1 + (min(np.real(values)) < 0) + any(
        abs(1 + v) > 1 for v in values if v.real < 0
    )


def test_step_sizes_are_increments_over_indices_and_one_without_attention():
    bare, gated = REPORT.networks[0], REPORT.networks[1]
    assert say.step_sizes(bare) == pytest.approx([1.0] * 9)
    frame = gated.after.to_frame()
    assert say.step_sizes(gated) == list(frame["increment_mean"] / frame["nsi_mean"])
    low = frame["step"][int(np.argmin(say.step_sizes(gated)))]
    assert f"(at {low})" in plain(say.chosen(gated))


def test_the_proof_tells_rounding_from_the_fold():
    said = " ".join(map(plain, say.proof(REPORT)))
    assert "Outputs differ by 2.4e-07 of the largest output." in said
    assert "differ by 1e-15: the fold itself is exact" in said
    assert "as many of 12 images right as before: 90.0 %" in said
    worse = replace(REPORT.forms[3], accuracy=0.8)
    forms = (*REPORT.forms[:3], worse, REPORT.forms[4])
    other = " ".join(map(plain, say.proof(replace(REPORT, forms=forms))))
    assert "gets 80.0 % of 12 images right, and 90.0 % before" in other


def test_a_column_for_each_form_and_a_row_for_each_quantity():
    """What nobody knows is a dash."""
    trained = TimedForm("as trained", 0.975, 275_183, 10_205_792, 200.0)
    unknown = TimedForm("folded", None, 272_474, None, None, float("nan"))
    table = forms_table([trained, unknown])
    assert [column.heading for column in table.columns] == ["", "as trained", "folded"]
    assert [[cell.text for cell in row.cells] for row in table.rows] == [
        ["Accuracy", "97.5 %", MISSING],
        ["Parameters", "275,183", "272,474"],
        ["MACs an image", "10,205,792", MISSING],
        ["Images/s", "200", MISSING],
        ["Scaled error", MISSING, MISSING],
    ]


def test_the_page_tells_the_story_and_every_figure_has_its_place():
    page = Parsed(drawn([REPORT]))
    text = " ".join(" ".join(page.texts).split())
    for heading in ("What stiffness is", "Where this network is stiff", "One step, eigenvalue by",
                    "What attention did", "What folding gave back", "one seed (0)"):  # fmt: skip
        assert heading in text
    places = [a["id"] for _, a in page.elements if a.get("class") == "plot"]
    assert sorted(places) == sorted(page.data["figures"])
    for network in REPORT.networks:
        assert f"{network.after.tns:.2f}"[:4] in text


def test_two_demos_stand_on_one_page_beside_a_run():
    page = Parsed(drawn([REPORT, REPORT.networks[0].log, REPORT]))
    identifiers = page.attribute("id")
    assert [name for name, many in Counter(identifiers).items() if many > 1] == []
    assert {href.removeprefix("#") for href in page.attribute("href")} <= set(identifiers)


def test_what_a_user_wrote_is_text_and_nothing_else():
    harmless = Parsed(drawn([demo_cases.poisoned("a harmless word")], heading="A page"))
    for payloads in (PAYLOADS[::2], PAYLOADS[1::2]):
        hostile = " ".join(payload for payload in payloads if len(payload) < 300)
        text = drawn([demo_cases.poisoned(hostile)], heading="A page")
        text.encode()  # a lone surrogate would raise: the page must be writable
        page = Parsed(text)
        assert page.skeleton == harmless.skeleton
        assert page.comments == harmless.comments
        assert page.code == harmless.code
        assert clean(hostile, longest=120).strip() in [text.strip() for text in page.texts]
        for written in strings(list(page.data["figures"].values())):
            assert "<script" not in written
            assert "<img" not in written


def test_a_terminal_shows_the_networks_and_the_answer():
    console = Console(width=80, color_system=None, force_terminal=True)
    with console.capture() as capture:
        console.print(REPORT)
    text = capture.get()
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "ASR(SE)" in text
    assert "another seed may put" in " ".join(text.split())
