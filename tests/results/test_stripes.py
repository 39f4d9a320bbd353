"""The report keeps every number, shows it to people, and loads nothing from anywhere."""

import base64
import hashlib
import io
import json
import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from naming import case
from observe.stripe_cases import poisoned, report
from report.parsed import Parsed, colours, strings
from report.payloads import PAYLOADS
from stiffnet.errors import CorruptFileError, StorageError
from stiffnet.report.page import page as drawn
from stiffnet.report.stripes_plots import CHANNELS, chosen_channels
from stiffnet.report.text import clean
from stiffnet.report.theme import TO_DARK
from stiffnet.results.stripes import StripeReport

OWN_TAGS = {"<b>", "</b>", "<br>", "<extra>", "</extra>"}


def parsed(made):
    return Parsed(drawn([made], heading=made.facts["model"]))


def assert_same(one, other):
    for each in fields(one):
        mine, yours = getattr(one, each.name), getattr(other, each.name)
        if isinstance(mine, np.ndarray):
            np.testing.assert_array_equal(mine, yours)
            assert mine.dtype == yours.dtype
        elif isinstance(mine, dict):
            assert list(mine) == list(yours)
            for key in mine:
                np.testing.assert_array_equal(mine[key], yours[key])
        elif each.name not in ("modules", "drift", "growth"):
            assert mine == yours


@pytest.mark.parametrize("whole", [True, False])
def test_saving_and_loading_changes_nothing(whole):
    made = report(whole=whole)
    loaded = StripeReport.load(made.save("report.json"))
    assert_same(made, loaded)
    for one, other in zip(made.modules, loaded.modules, strict=True):
        assert_same(one, other)
    assert (loaded.drift is None, loaded.growth is None) == (not whole, not whole)
    if whole:
        assert_same(made.drift, loaded.drift)
        assert_same(made.growth, loaded.growth)
    assert loaded.to_json() == made.to_json()


def test_a_bound_beyond_float64_is_kept():
    made = report()
    deep = replace(made.growth, log_bound=np.array([1.0, 500.0, 5000.0]))
    loaded = StripeReport.load(made.adding(growth=deep).save("report.json"))
    assert list(loaded.growth.log_bound) == [1.0, 500.0, 5000.0]
    assert np.isinf(loaded.growth.to_frame()["bound"].iloc[-1])
    parsed(loaded)


@pytest.mark.parametrize("where", range(0, 6000, 487))
def test_a_changed_file_is_refused(where):
    text = report().save("report.json").read_bytes()
    where %= len(text)
    other = b"0" if text[where : where + 1] != b"0" else b"1"
    Path("report.json").write_bytes(text[:where] + other + text[where + 1 :])
    with pytest.raises(CorruptFileError, match="is no stripe report of ours, or it is damaged"):
        StripeReport.load("report.json")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": NaN}', "\udcff"])
def test_another_file_is_refused(text):
    Path("other.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(CorruptFileError, match="is no stripe report"):
        StripeReport.load("other.json")


def test_a_missing_file_is_refused():
    with pytest.raises(StorageError, match="could not be read"):
        StripeReport.load("missing.json")


def test_a_row_for_each_module():
    frame = report().to_frame()
    assert list(frame.columns) == [
        "step", "module", "channels", "spatial", "score", "cost", "value_mean", "value_std_mean",
        "value_std_max", "input_std_mean", "silent",
    ]  # fmt: skip
    assert list(frame["step"]) == ["layer1.0", "layer1.1", "layer2.0"]


def test_the_policy_names_exactly_the_scripts_of_the_page():
    page = parsed(report())
    hashes = {
        "'sha256-" + base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() + "'"
        for code in page.code
    }
    (allowed,) = re.findall(r"script-src ([^;]*)", page.policy)
    assert set(allowed.split()) == hashes
    assert len(hashes) == 2
    assert page.policy.startswith("default-src 'none';")


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.usefixtures("short_plotly")
def test_the_page_has_no_address_outside_itself(whole):
    made = report(whole=whole)
    path = made.html("page.html", heading="Stripes")
    page = path.read_text(encoding="utf-8")
    assert not re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", page)
    for _, attributes in Parsed(page).elements:
        assert not {"src", "srcset", "action", "data"} & set(attributes)
        assert attributes.get("href", "#").startswith("#")


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.usefixtures("short_plotly")
def test_a_figure_for_each_place_and_a_place_for_each_figure(whole):
    page = parsed(report(whole=whole))
    places = [a["id"] for t, a in page.elements if "plot" in a.get("class", "").split()]
    assert sorted(places) == sorted(page.data["figures"])
    assert len(places) == (2 + 2 + 3 * 3 if whole else 2 + 2 * 3)


@pytest.mark.usefixtures("short_plotly")
def test_every_colour_has_a_dark_counterpart():
    used = set(colours(parsed(report()).data["figures"]))
    assert {colour for colour in used if colour.startswith("#")} <= set(TO_DARK)


@pytest.mark.usefixtures("short_plotly")
def test_pictures_are_the_values_and_a_missing_one_is_a_gap():
    made = report()
    z = parsed(made).data["figures"]["values-1"]["data"][0]["z"]
    assert z[0][0] is None
    values = made.modules[1].values
    shown = [[float(f"{value:.5g}") for value in line] for line in values]
    assert z[1:] == shown[1:]


def test_wide_modules_are_thinned_out():
    assert chosen_channels(5) == [0, 1, 2, 3, 4]
    assert len(set(chosen_channels(1000))) == CHANNELS
    assert max(chosen_channels(1000)) < 1000


@pytest.mark.usefixtures("short_plotly")
def test_what_a_user_wrote_is_text_and_nothing_else():
    harmless = parsed(poisoned("a harmless word"))
    for payload in PAYLOADS:
        page = parsed(poisoned(payload))
        with case(payload):
            assert page.skeleton == harmless.skeleton
            assert page.comments == harmless.comments
            assert page.code == harmless.code
            for text in strings(page.data["figures"]):
                assert set(re.findall(r"<[^>]*>?", text)) <= OWN_TAGS
                assert "$" not in text
            assert clean(payload).strip() in [text.strip() for text in page.texts]
            json.dumps(page.data, allow_nan=False)


@pytest.mark.parametrize("whole", [True, False])
def test_a_terminal_of_eighty_columns_shows_it(whole):
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(report(["\x1b[31m" + "long.name." * 9, "b"], whole=whole))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert "0.950" in text
    assert "3.1 %" in text


def test_a_module_without_a_score_is_shown_as_a_dash():
    made = report(whole=False)
    empty = replace(made.modules[0], score=np.nan, cost=np.nan)
    unknown = StripeReport.load(replace(made, modules=(empty,)).save("report.json"))
    assert np.isnan(unknown.modules[0].score)
    assert "there are no values" in " ".join(parsed(unknown).texts)
