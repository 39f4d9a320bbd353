"""Pages of the other kinds of results as Chromium shows them."""

import pytest

from observe import gradcam_cases, spectrum_cases, stripe_cases
from report import demo_cases, study_cases
from report.browser import CHROMIUM, browser
from report.payloads import PAYLOADS
from stiffnet.report.page import page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]


LARGE = {  # and how many plots are drawn at once
    "stripes": (lambda: stripe_cases.report(channels=100), 4 + 3),
    "spectra": (lambda: spectrum_cases.report(size=400), 3 + 2),
    "study": (lambda: study_cases.study(picture="curves", failed=True), 2),
    "study with columns": (study_cases.columns_study, 3),
    "training": (study_cases.log, 3),
    "demo": (demo_cases.report, 2 + 1 + 2 + 2 + 1 + 2),
    "Grad-CAM": (gradcam_cases.report, 3 + 3),
}
POISONED = {
    "stripes": stripe_cases.poisoned,
    "spectra": spectrum_cases.poisoned,
    "study": study_cases.poisoned,
    "study with columns": study_cases.poisoned_columns,
    "training": study_cases.poisoned_log,
    "demo": demo_cases.poisoned,
    "Grad-CAM": gradcam_cases.poisoned,
}


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


@pytest.mark.parametrize("width", [1280, 390])
def test_studies_and_runs_stand_on_one_page(tab, tmp_path, width):
    path = tmp_path / "page.html"
    path.write_text(page([*study_cases.several(), study_cases.log()], heading="Six studies"))
    tab.open(path, width=width, touch=width < 500)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    drawn = "[...document.querySelectorAll('.plot')].filter((p) => p.querySelector('.main-svg'))"
    assert tab.evaluate(f"{drawn}.length") == 5 + 2 + 6 + 3
    assert_quiet(tab)


def test_the_numbers_of_a_chart_are_saved_as_csv(tab, tmp_path):
    made = study_cases.study()
    tab.open(made.html(tmp_path / "page.html"))
    tab.evaluate(
        "window.saved = []; URL.createObjectURL = (blob) => { blob.text().then((t) => "
        "saved.push(t)); return 'blob:x'; }; HTMLAnchorElement.prototype.click = function () {}"
    )
    tab.evaluate("document.querySelector('[data-csv]').click()")
    tab.wait_for("saved.length === 1")
    lines = tab.evaluate("saved[0]").split("\r\n")
    assert lines[0] == "series,x,y,z,error_above,error_below"
    first = made.comparisons[0]
    assert any(f"{first.estimate:.5g}".rstrip("0") in line for line in lines)
    assert sum(line.startswith("published,") for line in lines) == len(made.comparisons)
    assert_quiet(tab)


def test_speeds_are_saved_with_their_names_and_both_ends_of_their_intervals(tab, tmp_path):
    made = demo_cases.report()
    tab.open(made.html(tmp_path / "page.html"))
    tab.evaluate(
        "window.saved = []; URL.createObjectURL = (blob) => { blob.text().then((t) => "
        "saved.push(t)); return 'blob:x'; }; HTMLAnchorElement.prototype.click = function () {}"
    )
    tab.evaluate("document.querySelector('[data-csv=demo-speeds]').click()")
    tab.wait_for("saved.length === 1")
    lines = [line.split(",") for line in tab.evaluate("saved[0]").split("\r\n")[1:-1]]
    assert [line[2] for line in lines] == [form.name for form in made.forms]
    for line, form in list(zip(lines, made.forms, strict=True))[1:]:
        low, high = form.interval
        x, above, below = float(line[1]), float(line[4]), float(line[5])
        assert (x - below, x, x + above) == pytest.approx((low, form.ratio, high), abs=1e-4)
    assert_quiet(tab)


def test_a_spreadsheet_is_not_given_formulas(tab, tmp_path):
    rows = ("none", '=1+1,"x"', "@SUM(A1)", "<b>bold</b>")
    tab.open(study_cases.study(rows=rows, picture="curves").html(tmp_path / "page.html"))
    tab.evaluate(
        "window.saved = []; URL.createObjectURL = (blob) => { blob.text().then((t) => "
        "saved.push(t)); return 'blob:x'; }; HTMLAnchorElement.prototype.click = function () {}"
    )
    tab.evaluate("document.querySelector('[data-csv=\"study-0-picture\"]').click()")
    tab.wait_for("saved.length === 1")
    text = tab.evaluate("saved[0]")
    assert '"\'=1+1,""x""",' in text
    assert "'@SUM(A1)," in text
    assert "<b>bold</b>," in text
    assert "\n=" not in text
