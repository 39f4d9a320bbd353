"""The page as Chromium shows it."""

from dataclasses import replace

import pytest

from report.browser import CHROMIUM, browser
from report.cases import VIT, poisoned, view
from report.payloads import PAYLOADS
from stiffnet.report.page import page as drawn
from stiffnet.report.text import clean

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def shown(tab, tmp_path):
    def show(views, heading="A page", **options):
        tab.problems.clear()
        tab.requests.clear()
        path = tmp_path / "page.html"
        path.write_text(drawn(views, heading=heading), encoding="utf-8")
        tab.open(path, **options)
        return tab

    return show


def assert_quiet(tab):
    tab.evaluate("new Promise((done) => setTimeout(done, 300))")
    assert tab.problems == []
    assert {url.split(":")[0] for url in tab.requests} <= {"file", "data", "blob"}
    assert sum(url.startswith("file:") for url in tab.requests) == 1


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("many", [1, 2], ids=["one", "two"])
def test_everything_is_drawn_without_complaint_and_without_sideways_scroll(
    shown, width, dark, many
):
    views = [view(samples=40, seed=i, title=f"run {i}", attention=i == 1) for i in range(many)]
    tab = shown(views, width=width, dark=dark, touch=width < 500)
    drawn = "[...document.querySelectorAll('.plot')].every((p) => p.querySelector('.main-svg'))"
    assert tab.evaluate(drawn)
    assert tab.evaluate("document.querySelectorAll('.plot').length") == 1 + 3 * many
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert_quiet(tab)


def test_no_payload_acts_in_a_browser(shown):
    payloads = [p for p in PAYLOADS if len(p) < 300]
    base = view(((len(payloads), (8,)),), samples=12, labels=len(payloads))
    names = [f"{i} {payload}" for i, payload in enumerate(payloads)]
    hostile = replace(
        base,
        title=" ".join(payloads[:8]),
        facts={name: name for name in names},
        steps=base.steps.assign(step=names),
        labels=base.labels.assign(label=names),
        stiffest=tuple(replace(c, label=n) for c, n in zip(base.stiffest, names, strict=False)),
    )
    tab = shown([hostile, poisoned(payloads[0])], heading=" ".join(payloads), width=8000)
    assert tab.evaluate("typeof window.pwned") == "undefined"
    assert (
        tab.evaluate("document.querySelectorAll('svg a, .plot b, .plot img, iframe').length") == 0
    )
    ticks = tab.evaluate(
        "[...document.querySelectorAll('#nsi-0 .xtick text')].map((t) => t.textContent)"
    )
    written = {" ".join(clean(name, longest=18).split()) for name in names}
    assert len(ticks) > len(names) / 3  # a chart names as many steps as there is room for
    assert {" ".join(tick.split()) for tick in ticks} <= written
    assert_quiet(tab)


def test_hovering_shows_a_hostile_name_as_it_is_written(shown):
    name = "<b>x</b><a href='https://evil.example/'>y</a> %{x} $z$"
    base = view(((2, (8,)),), samples=5, first_counted=True)
    tab = shown([replace(base, steps=base.steps.assign(step=[name, "b"]))])
    tab.evaluate("Plotly.Fx.hover('nsi-0', [{curveNumber: 2, pointNumber: 0}])")
    tab.wait_for("!!document.querySelector('#nsi-0 .hoverlayer text')", 5)
    assert name in tab.evaluate("document.querySelector('#nsi-0 .hoverlayer').textContent")
    assert_quiet(tab)


def test_the_policy_stops_a_script_that_is_not_ours(shown):
    tab = shown([view(VIT, samples=5)])
    tab.evaluate(
        "{const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        " document.body.append(s); undefined}"
    )
    assert tab.evaluate("typeof window.ran") == "undefined"


def test_a_heading_sorts_and_a_filter_hides(shown):
    base = view(samples=20)
    tab = shown([base])
    column = "[...document.querySelectorAll('#panel-0 table.steps tbody tr:not([hidden]) th')]"
    names = f"{column}.map((cell) => cell.textContent)"
    assert tab.evaluate(names) == list(base.steps["step"])
    button = "document.querySelectorAll('#panel-0 table.steps [data-sort]')[2]"
    tab.evaluate(f"{button}.click()")
    falling = list(base.steps.sort_values("nsi_mean", ascending=False)["step"])
    assert tab.evaluate(names) == falling
    assert tab.evaluate(f"{button}.parentElement.getAttribute('aria-sort')") == "descending"
    tab.evaluate(f"{button}.click()")
    assert tab.evaluate(names) == falling[::-1]
    tab.evaluate(
        "{const f = document.getElementById('steps-0-filter'); f.value = 'LAYER2.';"
        " f.dispatchEvent(new Event('input')); undefined}"
    )
    assert sorted(tab.evaluate(names)) == sorted(n for n in falling if n.startswith("layer2."))
    assert_quiet(tab)


def test_charts_follow_the_system_when_it_turns_dark(shown):
    tab = shown([view(samples=20)])
    ground = "document.querySelector('#nsi-0 .main-svg').style.background"
    light = tab.evaluate(ground)
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    tab.call("Emulation.setEmulatedMedia", features=features)
    tab.wait_for(f"{ground} !== {light!r}", 10)
    assert tab.evaluate(ground) == "rgb(26, 30, 35)"
    assert_quiet(tab)


def test_the_axis_can_be_logarithmic_and_a_picture_saved(shown):
    tab = shown([view(samples=20)])
    axis = "document.getElementById('nsi-0').layout.yaxis.type"
    assert tab.evaluate(axis) == "linear"
    tab.evaluate("document.querySelector('[data-log=nsi-0]').click()")
    assert tab.evaluate(axis) == "log"
    size = "Plotly.toImage('nsi-0', {format: 'png'}).then((url) => url.length)"
    assert tab.evaluate(size) > 10_000
    assert_quiet(tab)


def test_the_tables_of_one_network_are_shown_at_a_time(shown):
    tab = shown([view(samples=9, title="a"), view(samples=9, title="b")])
    hidden = "[...document.querySelectorAll('.panel')].map((panel) => panel.hidden)"
    assert tab.evaluate(hidden) == [False, True]
    tab.evaluate("document.querySelectorAll('[data-panel]')[1].click()")
    assert tab.evaluate(hidden) == [True, False]
    assert_quiet(tab)
