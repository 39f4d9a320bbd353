"""The section on folding: what it shows of its rows, what it says of them, and what is text."""

from dataclasses import replace

import pytest

from naming import case
from report.cases import thin, view
from report.parsed import Parsed
from report.payloads import PAYLOADS
from stiffnet.report.forms import forms_table, saving
from stiffnet.report.page import page as drawn
from stiffnet.report.text import MISSING, clean, plain
from stiffnet.results.fold import Form, Forms

BASE = thin(view(((2, (16, 8, 8)), (1, (32, 4, 4))), samples=6, labels=2, seed=1))
TRAINED = Form("as trained", 0.975, 275_183, 10_205_792, 200.0)
FOLDED = Form("folded", 0.975, 272_474, 10_203_776, 250.0, 2.1e-7)
FUSED = Form("fused", 0.95, 271_690, 10_203_776, 320.0, 3.4e-7)
SHOWN = Forms((TRAINED, FOLDED, FUSED), tested=360, batch=64, passes=15)


@pytest.fixture(autouse=True)
def _short(short_plotly):
    pass


def parsed(fold):
    return Parsed(drawn([BASE] if fold is None else [fold, BASE], heading="a page"))


def texts(page):
    return [" ".join(text.split()) for text in page.texts]


def named(text):
    return replace(SHOWN, forms=tuple(replace(form, name=text) for form in SHOWN.forms))


def test_a_column_for_each_form_and_a_row_for_each_quantity():
    table = forms_table(SHOWN)
    assert [column.heading for column in table.columns] == ["", "as trained", "folded", "fused"]
    assert [[cell.text for cell in row.cells] for row in table.rows] == [
        ["Accuracy", "97.5 %", "97.5 %", "95.0 %"],
        ["Parameters", "275,183", "272,474", "271,690"],
        ["MACs an image", "10,205,792", "10,203,776", "10,203,776"],
        ["Images/s", "200", "250", "320"],
        ["Scaled error", MISSING, "2e-07", "3e-07"],
    ]


def test_every_number_of_the_table_is_on_the_page():
    shown = texts(parsed(SHOWN))
    for row in forms_table(SHOWN).rows:
        for cell in row.cells:
            assert cell.text in shown
    (note,) = [text for text in shown if "360 images" in text]
    assert "median of 15 passes of 64 images" in note


def test_the_sentence_compares_with_what_was_trained():
    assert plain(saving(SHOWN)) == (
        "Folded, it has 2,709 parameters fewer (1.0 %), takes 1.25 times as many images a second "
        "(fused: 1.60) and is as accurate; outputs differ by 2e-07 of the largest."
    )


def test_another_accuracy_is_said_and_not_hidden():
    worse = replace(SHOWN, forms=(TRAINED, replace(FOLDED, accuracy=0.9)))
    assert "is right on 90.0 % of the images instead of 97.5 %" in plain(saving(worse))


def test_what_nobody_knows_is_a_dash():
    unknown = Form("folded", None, 272_474, None, None, float("nan"))
    page = parsed(replace(SHOWN, forms=(TRAINED, unknown)))
    assert not {"nan", "None"} & set(texts(page))
    cells = [
        row.cells[2].text for row in forms_table(replace(SHOWN, forms=(TRAINED, unknown))).rows
    ]
    assert cells == [MISSING, "272,474", MISSING, MISSING, MISSING]


def test_without_forms_there_is_no_section_and_no_way_to_it():
    page = parsed(None)
    assert "folded" not in page.attribute("id")
    assert "#folded" not in page.attribute("href")
    assert {"folded", "folded-heading"} <= set(parsed(SHOWN).attribute("id"))
    assert "#folded" in parsed(SHOWN).attribute("href")


def test_the_section_changes_nothing_else_on_the_page():
    page, without = parsed(SHOWN), parsed(None)
    assert page.data == without.data
    assert page.policy == without.policy
    identifiers = page.attribute("id")
    assert len(identifiers) == len(set(identifiers))


def test_a_name_is_text_and_nothing_else():
    harmless = parsed(named("a harmless word"))
    for payload in PAYLOADS:
        page = parsed(named(payload))
        with case(payload):
            assert page.skeleton == harmless.skeleton
            assert page.comments == harmless.comments
            assert page.code == harmless.code
            written = [text.strip() for text in page.texts]
            assert written.count(clean(payload, longest=40).strip()) >= len(SHOWN.forms)
