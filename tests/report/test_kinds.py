"""Results of several kinds on one page: every part has its place, and none is there twice."""

from collections import Counter
from dataclasses import replace

import pytest

from observe import gradcam_cases, spectrum_cases, stripe_cases
from report import study_cases
from report.cases import thin, view
from report.parsed import Parsed
from results.test_comparison import COMPARISON
from results.test_fold import REPORT
from stiffnet.report.page import page as drawn

VIEWS = [thin(view(((3, (8,)),), samples=9, labels=2, seed=i, title=f"run {i}")) for i in (0, 1)]
STRIPES = stripe_cases.report()
SPECTRA, ONE = spectrum_cases.report(images=3), spectrum_cases.spectrum()
MIXED = {
    "all": [VIEWS[0], STRIPES, REPORT, SPECTRA],
    "two and two": [VIEWS[0], STRIPES, VIEWS[1], STRIPES],
    "two of each": [REPORT, *VIEWS, REPORT, STRIPES, STRIPES, SPECTRA, ONE],
    "two mean maps": [gradcam_cases.report(), REPORT, gradcam_cases.report(classes=())],
    "comparisons": [COMPARISON, REPORT, COMPARISON],
    "studies and runs": [
        *study_cases.several(),
        study_cases.columns_study(),
        study_cases.columns_study(picture="plane"),
        study_cases.log(),
        study_cases.log(seed=1),
        REPORT,
    ],
    "two studies of one name": [study_cases.study(), study_cases.study()],
}


@pytest.fixture(autouse=True)
def _short(short_plotly):
    pass


@pytest.mark.parametrize("results", MIXED.values(), ids=MIXED)
def test_every_figure_has_its_place_and_every_name_is_there_once(results):
    page = Parsed(drawn(results))
    places = [a["id"] for _, a in page.elements if a.get("class") == "plot"]
    assert sorted(places) == sorted(page.data["figures"])
    identifiers = page.attribute("id")
    assert [name for name, many in Counter(identifiers).items() if many > 1] == []
    targets = {href.removeprefix("#") for href in page.attribute("href")}
    assert targets <= set(identifiers)
    for name in ("for", "aria-labelledby"):
        assert set(page.attribute(name)) <= set(identifiers)


def test_a_result_is_drawn_the_same_beside_others():
    alone, beside = (Parsed(drawn(r)).data["figures"] for r in ([STRIPES], [STRIPES, *VIEWS]))
    assert {place: beside[place] for place in alone} == alone


def test_the_page_says_which_kinds_it_shows():
    def kind(results):
        text = drawn(results).split('<p class="brand">')[1].split("</p>")[0]
        return " ".join(text.replace("<b>stiffnet</b>", "").split())

    assert kind([VIEWS[0]]) == "stiffness report"
    assert kind([VIEWS[0], STRIPES, REPORT]) == "stiffness, stripe and fold report"


def test_titles_are_one_for_each_result_or_none():
    text = drawn([REPORT, STRIPES], titles=["one <b>", "two"])
    assert "one &lt;b&gt; and two</h1>" in text
    with pytest.raises(ValueError, match="shorter"):
        drawn([REPORT, STRIPES], titles=["one"])


def test_what_is_no_result_is_refused_by_its_type():
    with pytest.raises(TypeError, match="int is not a result"):
        drawn([3])


def test_definitions_of_one_word_are_there_once():
    page = drawn([STRIPES, replace(STRIPES, growth=None)])
    assert page.count("<dt>Score</dt>") == page.count("<dt>Theorem 6.1</dt>") == 1


@pytest.mark.parametrize("results", MIXED.values(), ids=list(MIXED))
def test_the_words_of_every_axis_have_the_same_font(results):
    figures = Parsed(drawn(results)).data["figures"].values()
    axes = [figure["layout"].get(name, {}) for figure in figures for name in ("xaxis", "yaxis")]
    titles = [axis["title"] for axis in axes if axis.get("title", {}).get("text")]
    assert {title.get("font", {}).get("size") for title in titles} <= {13}
