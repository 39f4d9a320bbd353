import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import stiffnet
from report.cases import RESNET, VIT, thin, view
from report.parsed import Parsed, colours
from stiffnet.report.page import json_block, page as drawn
from stiffnet.report.theme import TO_DARK

SMALL = ((3, (16, 8, 8)), (2, (32, 4, 4)))


def small(**options):
    return thin(view(SMALL, **{"samples": 20, "labels": 3} | options))


def test_the_policy_names_exactly_the_scripts_of_the_page():
    page = Parsed(drawn([small()], heading="one"))
    hashes = {
        "'sha256-" + base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() + "'"
        for code in page.code
    }
    (allowed,) = re.findall(r"script-src ([^;]*)", page.policy)
    assert set(allowed.split()) == hashes
    assert len(hashes) == 2
    assert page.policy.startswith("default-src 'none';")
    assert "unsafe-eval" not in page.policy


def test_the_whole_page_is_below_its_limit_with_a_thousand_labels_and_long_networks():
    deep = tuple((54, (64 * 2**i, 32, 32)) for i in range(3))
    views = [view(deep, samples=9, labels=1000, seed=i, title=f"run {i}") for i in range(3)]
    page = drawn(views, heading="large")
    assert len(page.encode()) < 20e6
    assert page.count("plotly.js v") == 1  # the library is in it once


def test_the_library_cannot_end_its_own_script():
    from plotly.offline import get_plotlyjs

    code = get_plotlyjs()
    assert "</script" not in code.lower()
    assert "<!--" not in code
    assert "\r" not in code  # a parser would turn it into a line feed, and the hash would differ


def test_nothing_can_be_sent_anywhere(short_plotly):
    """What a page does not name, `default-src 'none'` forbids: connections, frames, workers."""
    policy = Parsed(drawn([small()], heading="one")).policy
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    scripts = rules.pop("script-src").split()
    assert all(source.startswith("'sha256-") for source in scripts)
    assert rules == {
        "default-src": "'none'",
        "style-src": "'unsafe-inline'",
        "img-src": "data: blob:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_reports_are_read_and_drawn_without_torch(tmp_path):
    earlier = Path(__file__).parents[1] / "earlier"
    code = f"""
import sys
from stiffnet.results.stiffness import StiffnessReport
from stiffnet.results.stripes import StripeReport
from stiffnet.report.page import page
from rich.console import Console
read = [StiffnessReport.load({str(earlier / "measured/report.json")!r}),
        StripeReport.load({str(earlier / "striped/stripes.json")!r})]
assert len(page(read)) > 100_000
for each in read:
    Console(quiet=True).print(each)
    again = type(each).load(each.save("again.json"))
    assert again.to_json() == each.to_json()
print([m for m in ("torch", "timm", "torchvision") if m in sys.modules])
"""
    source = str(Path(stiffnet.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.parametrize("room", ["report", "results"])
def test_the_room_loads_neither_torch_nor_a_model(room):
    source = Path(stiffnet.__file__).parents[1]
    files = [path.stem for path in (source / "stiffnet" / room).glob("*.py")]
    names = [f"stiffnet.{room}.{name}" for name in files if name != "__init__"]
    code = (
        f"import sys, stiffnet.{room}, {', '.join(names)}; "
        "print([m for m in ('torch', 'timm', 'torchvision') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.parametrize(
    "views",
    [
        [small()],
        [small(title="before"), small(title="after", seed=2)],
        [small(), view(VIT, samples=8, labels=None, relations=False)],
        [view(((1, (8,)),), samples=3, labels=None, relations=False)],
        [view(((1, (8,)), (1, (16,))), samples=1, labels=1, first_counted=True)],
        [replace(small(), stiffest=(), calmest=(), facts={}, accuracy=None, tns_se=None)],
        [small(title=f"run {i}", seed=i) for i in range(7)],
    ],
    ids=["one", "two", "different steps", "one step", "one sample", "bare", "seven"],
)
def test_every_figure_has_its_place_and_every_place_its_figure(short_plotly, views):
    page = Parsed(drawn(views, heading="a page"))
    places = [a["id"] for t, a in page.elements if a.get("class") == "plot"]
    assert sorted(places) == sorted(page.data["figures"])
    identifiers = page.attribute("id")
    assert len(identifiers) == len(set(identifiers))
    targets = {href.removeprefix("#") for href in page.attribute("href")}
    assert targets <= set(identifiers)
    assert {a for name in ("for", "aria-labelledby") for a in page.attribute(name)} <= set(
        identifiers
    )


def test_notes_are_on_the_page_and_escaped(short_plotly):
    page = drawn([replace(small(), notes=("mind <b>this</b>",))], heading="x")
    assert '<p class="warning">mind &lt;b&gt;this&lt;/b&gt;</p>' in page


def test_hollow_points_are_explained_by_what_is_true_of_all_of_them(short_plotly):
    """The first step of a vision transformer's only stage has an identity for its shortcut."""
    words = " ".join(drawn([view(VIT, samples=8)], heading="x").split())
    assert "Hollow points are steps that TNS leaves out: the first of each stage." in words


def test_the_total_of_increments_has_a_tile_where_there_are_gates(short_plotly):
    gated, plain = (drawn([small(attention=a)], heading="x") for a in (True, False))
    assert "<dt>Total of increments</dt>" in gated
    assert "<dt>Total of increments</dt>" not in plain


def test_networks_with_the_same_steps_share_a_chart_and_others_do_not(short_plotly):
    same = Parsed(drawn([small(), small(seed=1)], heading="x")).data["figures"]
    other = Parsed(drawn([small(), view(VIT, samples=8)], heading="x")).data["figures"]
    assert [place for place in same if place.startswith("nsi")] == ["nsi-0"]
    assert [place for place in other if place.startswith("nsi")] == ["nsi-0", "nsi-1"]


def test_a_missing_number_is_null_in_data_and_a_dash_in_tables(short_plotly):
    base = small()
    steps = base.steps.assign(nsi_median=np.nan, nsi_q05=np.inf, increment_mean=np.nan)
    labels = base.labels.assign(tns=np.nan, accuracy=None)
    broken = replace(
        base, steps=steps, labels=labels, delta=base.delta * np.nan, tns_se=float("nan")
    )
    text = drawn([broken], heading="x")
    page = Parsed(text)  # reading its data refuses NaN
    assert page.data["figures"]["nsi-0"]["data"]
    assert "–" in [piece.strip() for piece in page.texts]
    assert not {"nan", "NaN", "inf", "None"} & {piece.strip() for piece in page.texts}


def test_json_keeps_what_it_is_given():
    value = {"a": [1, 2.5, True, None, "ü<\u2028"], "b": np.arange(3), "c": np.float32(0.1)}
    back = json.loads(json_block(value))
    assert back == {"a": [1, 2.5, True, None, "ü<\u2028"], "b": [0, 1, 2], "c": 0.1}


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), np.float32("inf"), np.nan])
def test_what_is_no_number_is_null(value):
    assert json_block([value, np.array([value])]) == "[null,[null]]"


def test_the_tables_hold_every_row_and_sort_by_full_precision(short_plotly):
    shown = view(RESNET, samples=10)
    page = Parsed(drawn([shown], heading="x"))
    values = {float(value) for value in page.attribute("data-value")}
    assert {float(v) for v in shown.steps["nsi_mean"]} <= values
    assert {float(v) for v in shown.labels["tns"]} <= values
    rows = sum(tag == "tr" for tag, _ in page.elements)
    frames = (shown.steps, shown.stages, shown.labels, shown.relations)
    assert rows == sum(len(frame) + 1 for frame in frames)


def test_every_colour_of_a_figure_has_a_dark_counterpart(short_plotly):
    views = [small(title=str(i), seed=i, attention=True) for i in range(7)]
    figures = Parsed(drawn(views, heading="x")).data["figures"]
    used = set(colours(figures)) - {"rgba(0, 0, 0, 0)"}
    assert used
    assert used <= set(TO_DARK)
