"""The page on spectra as Chromium shows it."""

import pytest

from observe.spectrum_cases import poisoned, report
from report.browser import CHROMIUM, browser
from report.payloads import PAYLOADS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


def assert_quiet(tab):
    tab.evaluate("new Promise((done) => setTimeout(done, 300))")
    assert tab.problems == []
    assert {url.split(":")[0] for url in tab.requests} <= {"file", "data", "blob"}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_everything_is_drawn_without_complaint_and_without_sideways_scroll(
    tab, tmp_path, width, dark
):
    path = report(size=400).html(tmp_path / "page.html")
    tab.open(path, width=width, dark=dark, touch=width < 500)
    drawn = "[...document.querySelectorAll('.plot')].filter((p) => p.querySelector('.main-svg'))"
    assert tab.evaluate(f"{drawn}.length") == 3 + 2  # and the pictures of one step
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert_quiet(tab)


def test_no_payload_acts_in_a_browser(tab, tmp_path):
    text = " ".join(payload for payload in PAYLOADS if len(payload) < 300)
    tab.open(poisoned(text).html(tmp_path / "page.html", heading=text))
    assert tab.evaluate("typeof window.pwned") == "undefined"
    assert tab.evaluate("document.querySelectorAll('svg a, .plot b, .plot img').length") == 0
    assert_quiet(tab)
