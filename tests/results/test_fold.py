"""A fold's report keeps what it was given, counts it, and is shown to people."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from naming import case
from report.parsed import Parsed
from report.payloads import PAYLOADS
from stiffnet.errors import CorruptFileError
from stiffnet.report.page import page as drawn
from stiffnet.report.text import clean
from stiffnet.results.changes import Change
from stiffnet.results.fold import INDEX_CHANGES, Cost, Folded, FoldReport, Refused
from stiffnet.sealed import sealed

REPORT = FoldReport(
    folded=(
        Folded("layer1.0.step_size", "asr:se", ("layer1.0.bn2",)),
        Folded("layer1.1.step_size", "asr:se", ("layer1.1.conv2", "layer1.1.conv3")),
        Folded("stem.bn", "norm", ("stem.conv",)),
    ),
    refused=(Refused("head.bn", "its output also goes elsewhere"),),
    scaled_error=2.4e-7,
    exact_error=1e-15,
    before=Cost(275_183, 10_205_792, 0.064),
    after=Cost(272_474, 10_203_776, 0.032),
    images=8,
    changes=(Change("norm", "stem.bn", "stem.conv"),),
    facts={"model": "resnet20_cifar", "data": "digits"},
)
BARE = replace(
    REPORT, refused=(), exact_error=None, before=Cost(9), after=Cost(8), changes=(), facts={}
)


def poisoned(text):
    """Return a report whose every string is the given one."""
    return replace(
        REPORT,
        folded=tuple(Folded(text, text, (text,)) for _ in REPORT.folded),
        refused=(Refused(text, text),),
        places=(text,),
        facts={"model": text, text: text},
    )


@pytest.mark.parametrize("report", [REPORT, BARE, replace(REPORT, places=("backbone",))])
def test_what_was_saved_is_loaded(report):
    assert FoldReport.load(report.save("fold.json")) == report
    assert json.loads(Path("fold.json").read_text())["format"] == "stiffnet fold report, version 1"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace("275183", "275184"),
        lambda text: text.replace("fold report", "stripe report"),
        lambda text: text[:100],
    ],
)
def test_a_changed_file_is_refused(spoil):
    path = REPORT.save("fold.json")
    path.write_text(spoil(path.read_text()))
    with pytest.raises(CorruptFileError, match=r"is no fold report .*Fold again.*FoldReport.save"):
        FoldReport.load(path)


@pytest.mark.parametrize("wrong", [{"images": "8"}, {"before": {}}, {"places": None}])
def test_a_sealed_file_of_other_types_is_refused(wrong):
    row = {"format": "stiffnet fold report, version 1", **REPORT.to_row(), **wrong}
    Path("fold.json").write_text(sealed(row))
    with pytest.raises(CorruptFileError, match="is no fold report"):
        FoldReport.load("fold.json")


def test_everything_that_was_folded_or_stays_has_a_row():
    frame = REPORT.to_frame()
    assert list(frame.columns) == ["name", "folded", "kind", "into", "reason"]
    assert frame["name"].tolist() == [
        "layer1.0.step_size", "layer1.1.step_size", "stem.bn", "head.bn",
    ]  # fmt: skip
    assert frame["folded"].tolist() == [True, True, True, False]
    assert frame["into"][1] == "layer1.1.conv2, layer1.1.conv3"
    assert frame["reason"][3] == "its output also goes elsewhere"
    assert list(replace(REPORT, folded=(), refused=()).to_frame().columns) == list(frame.columns)


def test_costs_are_counted_before_and_after():
    costs = REPORT.costs().set_index("form")
    assert costs["flops"].tolist() == [2 * 10_205_792, 2 * 10_203_776]
    assert costs["images_per_second"].tolist() == [125.0, 250.0]
    unknown = BARE.costs()
    assert unknown["parameters"].tolist() == [9, 8]
    assert np.isnan(unknown[["macs", "flops", "seconds", "images_per_second"]].to_numpy()).all()


def texts(page):
    return [" ".join(text.split()) for text in page.texts if text.strip()]


def test_the_page_says_what_went_where_what_stays_and_why():
    page = Parsed(REPORT.html("fold.html").read_text())
    shown = texts(page)
    for word in (
        "resnet20_cifar", "2 × asr:se and 1 × norm", "2,709 parameters fewer", "layer1.1.step_size",
        "layer1.1.conv2, layer1.1.conv3", "its output also goes elsewhere", "275,183", "272,474",
        "64.0 ms", "32.0 ms", "2.4e-07", "2.00 ×", INDEX_CHANGES,
    ):  # fmt: skip
        assert word in shown, word
    assert " ".join(shown).count("Outputs differ by 2.4e-07 of the largest output.") == 1
    identifiers = page.attribute("id")
    assert len(identifiers) == len(set(identifiers))
    assert {href.removeprefix("#") for href in page.attribute("href")} <= set(identifiers)


def test_a_page_without_charts_does_not_carry_the_library_that_draws_them():
    text = drawn([REPORT])
    assert len(text) < 60_000
    assert "plotly.js v" not in text
    assert len(Parsed(text).code) == 1


def test_what_nobody_knows_has_no_row():
    shown = texts(Parsed(drawn([BARE])))
    assert "MACs an image" not in shown
    assert "images/s" not in shown
    assert not {"nan", "None"} & set(shown)
    assert "Left" not in shown


def test_what_a_user_wrote_is_text_and_nothing_else():
    harmless = Parsed(drawn([poisoned("a harmless word")], heading="a harmless word"))
    for payload in PAYLOADS:
        page = Parsed(drawn([poisoned(payload)], heading=payload))
        with case(payload):
            assert page.skeleton == harmless.skeleton
            assert page.comments == harmless.comments
            assert page.code == harmless.code
            assert clean(payload, longest=120).strip() in [text.strip() for text in page.texts]


def printed(result):
    console = Console(width=80, color_system=None, force_terminal=True)
    with console.capture() as capture:
        console.print(result)
    return capture.get()


def test_a_terminal_shows_it_and_obeys_nothing_in_it():
    text = " ".join(printed(REPORT).split())
    for words in ("Folded: 2 × asr:se and 1 × norm", "Left: head.bn, because its output",
                  "Outputs differ by 2.4e-07 of the largest output.", "images/s"):  # fmt: skip
        assert words in text
    for payload in PAYLOADS:
        with case(payload):
            shown = printed(poisoned(payload))
            assert not {c for c in shown if ord(c) < 32 or 127 <= ord(c) < 160} - {"\n"}
            assert max(cell_len(line) for line in shown.splitlines()) <= 80
    assert "[bold]x[/bold]" in printed(poisoned("[bold]x[/bold]"))
