"""A demo's record gives back what it was given, and its intervals are what they say."""

import json
from math import comb
from pathlib import Path

import numpy as np
import pytest

from report import demo_cases
from stiffnet.errors import CorruptFileError
from stiffnet.results.demo import DemoReport, median_interval
from stiffnet.sealed import RESULT

REPORT = demo_cases.report()


def content(text):
    return {key: value for key, value in json.loads(text).items() if key != RESULT.key}


def test_what_was_saved_is_loaded():
    path = REPORT.save("demo.json")
    assert json.loads(path.read_text())["format"] == "stiffnet demo, version 1"
    loaded = DemoReport.load(path)
    assert loaded.to_json() == REPORT.to_json()
    assert loaded.to_frame().equals(REPORT.to_frame())
    assert loaded.forms == REPORT.forms
    for one, other in zip(loaded.networks, REPORT.networks, strict=True):
        assert np.array_equal(one.after.nsi, other.after.nsi)
        assert one.log == other.log


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace('"batch": 64', '"batch": 65'),
        lambda text: text.replace("stiffnet demo", "stiffnet fold report"),
        lambda text: text[:1000],
        lambda text: RESULT.text({**content(text), "forms": []}),
    ],
)
def test_a_changed_file_is_refused(spoil):
    path = REPORT.save("demo.json")
    path.write_text(spoil(path.read_text()))
    with pytest.raises(CorruptFileError, match=r"is no demo of ours.*Run the demo again"):
        DemoReport.load(Path("demo.json"))


@pytest.mark.parametrize("many", range(1, 60))
def test_the_interval_of_a_median_covers_it_in_95_of_100_cases_and_no_shorter_one_does(many):
    """By counting: the median is below the k-th smallest value if fewer than k are below it."""
    missed = [sum(comb(many, i) for i in range(k)) / 2**many for k in range(many + 2)]
    found = median_interval(list(range(many)))
    if found is None:
        assert 2 * missed[1] > 0.05
        return
    low, high = found
    assert low + high == many - 1  # as many values are left out at either end
    assert 2 * missed[low + 1] <= 0.05 < 2 * missed[low + 2]


def test_the_order_of_the_values_does_not_matter():
    values = list(np.random.default_rng(0).normal(size=31))
    assert median_interval(values) == median_interval(sorted(values))
    assert median_interval([]) is None


def test_every_form_has_a_row_and_only_trained_networks_have_a_stiffness():
    frame = REPORT.to_frame().set_index("name")
    assert list(frame.index) == ["plain", "SE", "ASR(SE)", "folded", "fused"]
    assert frame.loc["plain", "speed"] == 1
    assert frame.loc["SE", "speed"] == pytest.approx(0.8)
    assert frame.loc["SE", "speed_low"] < 0.8 < frame.loc["SE", "speed_high"]
    assert frame.loc["SE", "tns_after"] == REPORT.networks[1].after.tns
    assert frame["tns_after"].isna().tolist() == [False] * 3 + [True] * 2
