"""Pages of the other kinds of results as Chromium shows them."""

import pytest

from observe import spectrum_cases, stripe_cases
from report.browser import CHROMIUM, browser
from report.payloads import PAYLOADS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]


LARGE = {  # and how many plots are drawn at once
    "stripes": (lambda: stripe_cases.report(channels=100), 4 + 3),
    "spectra": (lambda: spectrum_cases.report(size=400), 3 + 2),
}
POISONED = {"stripes": stripe_cases.poisoned, "spectra": spectrum_cases.poisoned}


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


def assert_quiet(tab):
    tab.evaluate("new Promise((done) => setTimeout(done, 300))")
    assert tab.problems == []
    assert {url.split(":")[0] for url in tab.requests} <= {"file", "data", "blob"}


@pytest.mark.parametrize("kind", LARGE)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_everything_is_drawn_without_complaint_and_without_sideways_scroll(
    tab, tmp_path, width, dark, kind
):
    made, plots = LARGE[kind]
    path = made().html(tmp_path / "page.html")
    tab.open(path, width=width, dark=dark, touch=width < 500)
    drawn = "[...document.querySelectorAll('.plot')].filter((p) => p.querySelector('.main-svg'))"
    assert tab.evaluate(f"{drawn}.length") == plots
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert_quiet(tab)


def test_another_module_is_drawn_when_it_is_chosen(tab, tmp_path):
    tab.open(stripe_cases.report().html(tmp_path / "page.html"))
    shown = "[...document.querySelectorAll('.module')].map((m) => !m.hidden).join()"
    assert tab.evaluate(shown) == "true,false,false"
    tab.evaluate("document.querySelector('[data-turn=\"-1\"]').click()")
    assert tab.evaluate(shown) == "false,false,true"
    tab.wait_for("!!document.querySelector('#values-2 .main-svg')")
    assert_quiet(tab)


@pytest.mark.parametrize("kind", POISONED)
def test_no_payload_acts_in_a_browser(tab, tmp_path, kind):
    text = " ".join(payload for payload in PAYLOADS if len(payload) < 300)
    tab.open(POISONED[kind](text).html(tmp_path / "page.html", heading=text))
    assert tab.evaluate("typeof window.pwned") == "undefined"
    assert tab.evaluate("document.querySelectorAll('svg a, .plot b, .plot img').length") == 0
    assert_quiet(tab)
