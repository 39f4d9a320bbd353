import re
from functools import cache

import pytest

from naming import case
from report.cases import poisoned, thin, view
from report.parsed import Parsed, strings
from report.payloads import PAYLOADS
from stiffnet.report.page import page as drawn
from stiffnet.report.stiffness_plots import nsi_figure
from stiffnet.report.text import clean

OWN_TAGS = {"<b>", "</b>", "<br>", "<extra>", "</extra>"}
BASE = thin(view(((2, (16, 8, 8)), (1, (32, 4, 4))), samples=6, labels=2, seed=1))
WORD = "a harmless word"


@pytest.fixture(autouse=True)
def _short(short_plotly):
    pass


@cache
def page_with(payload, views):
    return drawn([poisoned(payload, BASE)] * views, heading=payload)


@cache
def _parsed(payload, views):
    return Parsed(page_with(payload, views))


def parsed(payload, views=1):
    return _parsed(payload, views)  # one key for the cache, however it is called


def test_there_are_enough_payloads():
    assert len(set(PAYLOADS)) >= 50


def test_a_payload_changes_no_element_and_no_attribute():
    for payload in PAYLOADS:
        with case(payload):
            assert_same_but_for_text(parsed(payload), parsed(WORD))


def test_nor_does_it_on_a_page_of_two_networks():
    for payload in PAYLOADS[::5]:
        with case(payload):
            assert_same_but_for_text(parsed(payload, 2), parsed(WORD, 2))


def assert_same_but_for_text(page, harmless):
    assert page.skeleton == harmless.skeleton
    assert page.comments == harmless.comments
    assert page.code == harmless.code
    assert page.policy == harmless.policy


def test_no_attribute_holds_a_url_or_a_handler():
    for payload in PAYLOADS:
        with case(payload):
            for tag, attributes in parsed(payload).elements:
                assert not [name for name in attributes if name.startswith("on")]
                assert not {"src", "srcdoc", "action", "formaction", "data", "xlink:href"} & set(
                    attributes
                )
                if "href" in attributes:
                    assert tag == "a"
                    assert re.fullmatch(r"#[a-z]+", attributes["href"])
                if "style" in attributes:
                    assert re.fullmatch(r"--share: [0-9.]+", attributes["style"])


def test_figures_hold_no_markup_but_ours():
    for payload in PAYLOADS:
        with case(payload):
            figures = [*parsed(payload).data["figures"].values(), overlaid(payload)]
            harmless = [*parsed(WORD).data["figures"].values(), overlaid(WORD)]
            for text in strings(figures):
                assert set(re.findall(r"<[^>]*>?", text)) <= OWN_TAGS
                assert "$" not in text
            assert lookups(figures) == lookups(harmless)


@cache
def overlaid(payload):
    """Return the chart of two networks, which has their titles in its legend and hover."""
    return nsi_figure([poisoned(payload, BASE)] * 2).to_plotly_json()


def lookups(figures):
    """Return what every hover template looks up: a user's text must add nothing to it."""
    return [
        re.findall(r"%\{[^}]*\}", trace["hovertemplate"])
        for figure in figures
        for trace in figure["data"]
        if "hovertemplate" in trace
    ]


def test_a_payload_is_shown_as_it_is_written():
    for payload in PAYLOADS:
        with case(payload):
            whole, short = clean(payload).strip(), clean(payload, longest=120).strip()
            texts = [text.strip() for text in parsed(payload).texts]
            assert texts.count(short) >= len(BASE.steps) + len(BASE.labels) + len(BASE.relations)
            assert texts.count(whole) >= 2  # two facts


def test_the_data_block_has_no_character_that_html_reads():
    for payload in PAYLOADS:
        with case(payload):
            page = page_with(payload, 1)
            block = page.split('<script type="application/json" id="data">')[1].split("</script>")[
                0
            ]
            assert not set(block) & set("<>&\u2028\u2029")
            assert block.isascii()
            page.encode()  # a lone surrogate would raise: the page must be writable
