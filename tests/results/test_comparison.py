"""Comparisons as records: saved and loaded, as a frame, as a page, in a terminal."""

import json
from dataclasses import replace

import pytest
from rich.console import Console

from report.parsed import Parsed
from stiffnet.errors import CorruptFileError
from stiffnet.report.page import page
from stiffnet.results.comparison import Comparison, Difference, Network, Pair


def network(name, *, steps=("a.0", "a.1", "b.0"), tns=0.5):
    return Network(
        name=name, steps=steps, stages=(0, 0, 1), counted=(False, True, False),
        nsi=(0.5, 0.25, 1.0), shares=(0.4, 0.6), tns=tns, tns_se=0.01, accuracy=0.75, loss=0.5,
        facts={"model": name, "data": "digits"},
    )  # fmt: skip


def difference(name="", first=0.5, second=0.75, holm=0.001):
    return Difference(name, name, first, second, 0.2, 0.3, holm / 2, holm)


SAME = difference("a.1", second=0.5, holm=1.0)
PAIRS = (
    Pair(
        "plain", "other", "name", "", difference(), None, difference(second=0.1),
        (difference("a.0"), SAME, difference("b.0", holm=0.06)), (difference("stage 0"),),
    ),
    Pair("plain", "third", "", "one has 3, the other 4", None, difference(), None, (), ()),
)  # fmt: skip
COMPARISON = Comparison(
    images=60,
    networks=(network("plain"), network("other"), network("third", tns=None)),
    pairs=PAIRS,
    facts={"data": "digits", "command": "stiffnet compare"},
)


def test_a_saved_comparison_is_the_same_when_it_is_loaded(tmp_path):
    loaded = Comparison.load(COMPARISON.save(tmp_path / "c.json"))
    assert vars(loaded) == vars(COMPARISON)


def test_a_damaged_one_is_refused(tmp_path):
    path = COMPARISON.save(tmp_path / "c.json")
    content = json.loads(path.read_text())
    content["images"] = 61
    path.write_text(json.dumps(content))
    with pytest.raises(CorruptFileError, match="is no comparison of networks of ours"):
        Comparison.load(path)


def test_a_frame_has_every_difference():
    frame = COMPARISON.to_frame()
    assert list(frame["quantity"]) == [
        "TNS",
        "loss",
        "stage share",
        "NSI",
        "NSI",
        "NSI",
        "accuracy",
    ]
    assert list(frame["differs"]) == [True, True, True, True, False, False, True]
    assert list(frame["difference"][:2]) == [0.25, -0.4]


def said(width=200):
    console = Console(width=width)
    with console.capture() as heard:
        console.print(COMPARISON)
    return " ".join(heard.get().split())


def test_a_terminal_is_told_what_differs_and_what_cannot_be_compared():
    text = said()
    assert (
        "plain, other and third on the same 60 images, each prepared as its network wants" in text
    )
    assert (
        "other, against plain: TNS is 0.250 higher (95 % interval 0.200 to 0.300, p 0.0010)" in text
    )
    assert "loss is 0.400 lower" in text
    assert (
        "1 of 3 steps of other differ significantly in NSI; the largest differences are at a.0"
        in text
    )
    assert "accuracy is 25.0 points higher" in text
    assert "The steps of plain and third do not correspond: one has 3, the other 4." in text


def test_a_page_shows_steps_where_they_correspond(short_plotly):
    parsed = Parsed(page([COMPARISON]))
    assert set(parsed.data["figures"]) == {"means", "differences-0", "shares"}
    drawn = parsed.data["figures"]["differences-0"]["data"][0]
    assert drawn["y"] == [0.25, 0.0, 0.25]
    assert len(set(drawn["marker"]["color"])) == 2  # filled and hollow
    alone = replace(COMPARISON, networks=COMPARISON.networks[::2], pairs=PAIRS[1:])
    assert set(Parsed(page([alone])).data["figures"]) == {"shares"}


def test_a_name_is_never_markup(short_plotly):
    bad = "<img src=x onerror=alert(1)>%{x}$y$"
    networks = tuple(replace(each, name=bad) for each in COMPARISON.networks)
    pairs = tuple(replace(each, first=bad, second=bad) for each in PAIRS)
    made = replace(COMPARISON, networks=networks, pairs=pairs)
    assert "<img" not in page([made])
