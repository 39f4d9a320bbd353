"""Pages of differential equations: what is on them, and that it is what was found."""

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from naming import case
from report.parsed import Parsed, strings
from report.payloads import PAYLOADS
from stiffnet.ode import adaptive, encounters, euler, solve, theorem2
from stiffnet.ode.linear import linear
from stiffnet.ode.problem import Problem
from stiffnet.report.ode_findings import apart, effects, on_encounters, on_euler, rank_of
from stiffnet.report.page import page as drawn
from stiffnet.report.text import plain
from stiffnet.results.ode import Encounters, OdeRecords, reached, share_at

OWN_TAGS = {"<b>", "</b>", "<br>", "<extra>", "</extra>"}
RECORDS = {
    "solution": solve.run("eq8"),
    "large solution": solve.run("pollu"),
    "euler": euler.run(),
    "steps": adaptive.run("threebody", rtol=1e-4),
    "constant": adaptive.run("eq8"),
    "theorem": theorem2.run(),
    "encounters": encounters.run(4, seed=0, duration=2.0),
    "one run": encounters.run(1, seed=0, duration=1.0),
}
SHOWN = {
    "solution": ["eq8 by radau", "SI and SAI in time", "The steps of the solver"],
    "large solution": ["pollu by radau", "The first 6 of 20 components."],
    "euler": ["Forward Euler on eq8", "up to a step of 0.002", "0.0021", "grow"],
    "steps": ["RKF45 on threebody", "Step against SI", "h · SI is below 3.68"],
    "constant": ["RKF45 on eq8", "SI never changes"],
    "theorem": ["Theorem 2", "√c is 0.6", "Every 0.01"],
    "encounters": ["hree bodies until t = 2", "91.4 %", "4.2 %", "4 runs"],
    "one run": ["hree bodies until t = 1", "1 run."],
}


@pytest.fixture(autouse=True)
def _short(short_plotly):
    pass


def text_of(page):
    return " ".join("".join(page.texts).split())


def printed(result):
    console = Console(width=80, file=io.StringIO())
    console.print(result)
    return console.file.getvalue()


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_has_a_page_and_a_terminal(name, tmp_path):
    record = RECORDS[name]
    page = Parsed(record.html(tmp_path / "page.html").read_text())
    for words in SHOWN[name]:
        assert words in text_of(page), words
    places = [a["id"] for _, a in page.elements if a.get("class") == "plot"]
    assert places
    assert sorted(places) == sorted(page.data["figures"])
    for place, figure in page.data["figures"].items():
        assert (
            figure["layout"]["xaxis"]["title"]["text"] != figure["layout"]["yaxis"]["title"]["text"]
        )
        assert any(any(v is not None for v in trace["y"]) for trace in figure["data"]), place
    lines = printed(record).splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) <= 80


def test_all_of_them_are_on_one_page_in_one_article():
    page = Parsed(drawn(list(RECORDS.values())))
    identifiers = page.attribute("id")
    assert len(identifiers) == len(set(identifiers))
    assert {h.removeprefix("#") for h in page.attribute("href")} <= set(identifiers)
    assert len([tag for tag, _ in page.elements if tag == "article"]) == 1
    shown = printed(OdeRecords(tuple(RECORDS.values())))
    for words in ("Solutions", "Forward Euler on eq8", "Steps of RKF45", "Theorem 2", "Duration"):
        assert words in shown


def test_bounds_and_the_papers_shares_are_drawn_where_they_are():
    figures = Parsed(drawn([RECORDS["euler"], RECORDS["encounters"], RECORDS["theorem"]])).data
    figures = figures["figures"]
    (bound, one) = figures["ode-factor-0"]["layout"]["shapes"]
    assert (bound["x0"], one["y0"]) == (0.002, 1)
    shares = figures["ode-shares-0"]["layout"]
    assert [shape["y0"] for shape in shares["shapes"]] == [91.4, 4.2]
    assert [note["text"] for note in shares["annotations"]] == [
        "paper: 91.4 % of runs", "paper: 4.2 % of intervals",
    ]  # fmt: skip
    star = figures["ode-trade"]["data"][-1]
    assert (star["x"], star["y"]) == ([4.2], [91.4])
    limit = figures["ode-ratio-0"]["layout"]
    assert limit["shapes"][0]["y0"] == pytest.approx(0.6)
    assert limit["annotations"][0]["y"] == pytest.approx(np.log10(0.6), abs=1e-4)


def test_a_step_at_the_bound_neither_shrinks_errors_nor_lets_them_grow():
    found = euler.run("eq8", [0.001, 0.002, 0.003], until=0.05)
    assert effects(found) == ["shrink", "stay as large", "grow"]
    said = plain(on_euler(found, "Forward Euler"))
    assert "shrink at 0.001 and stay as large at 0.002 and grow at 0.003" in said


def made(closest, time, thresholds):
    closest, thresholds = np.array(closest), np.array(thresholds)
    inside = np.array(time)[None].repeat(len(closest), axis=0)
    return Encounters(
        seed=None, duration=1.0, interval=0.1, rtol=1e-9, thresholds=thresholds, closest=closest,
        time=inside, intervals=inside, energy_error=np.zeros(len(closest)),
        momentum_error=np.zeros(len(closest)),
    )  # fmt: skip


def test_a_share_is_found_between_thresholds_or_not_at_all():
    record = made([0.5, 1.5, 9.0, 9.0], [0.4, 0.1, 0.2], [3.0, 1.0, 2.0])  # not in order
    assert reached(record, "runs", 0.25) == 1.0
    assert reached(record, "runs", 0.375) == pytest.approx(1.5)
    assert share_at(record, "time", 2.5) == pytest.approx(0.3)
    assert reached(record, "runs", 0.914) is None
    said = plain(on_encounters(record, "Three bodies"))
    assert "no threshold between 1.00 and 3.00 gives the paper's 91.4 % of runs" in said


def test_indices_that_grow_together_or_against_each_other_are_told_apart():
    solution = RECORDS["large solution"]
    steps = len(solution.steps)
    si, sai = np.arange(1.0, steps + 2), np.arange(1.0, steps + 1)
    together = replace(solution, stiffness_index=si, stiffness_aware_index=sai)
    against = replace(together, stiffness_aware_index=sai[::-1])
    assert (rank_of(together), rank_of(against)) == (pytest.approx(1), pytest.approx(-1))
    assert rank_of(replace(together, stiffness_index=np.full(steps + 1, 3.0))) is None
    assert apart(together) == 1
    gone = replace(together, stiffness_aware_index=np.full(steps, np.nan))
    assert apart(gone) is None
    assert "pollu by radau" in drawn([gone])


def test_a_problem_of_ones_own_may_have_any_name():
    made_up = linear([-5.0])

    def page(name):
        problem = Problem(name, made_up.rate, made_up.jacobian, made_up.start, (0.0, 1.0),
                          exact=made_up.exact)  # fmt: skip
        found = [solve.run(problem), euler.run(problem, [0.1, 0.5]), adaptive.run(problem)]
        return Parsed(drawn(found, heading=name))

    harmless = page("a harmless word")
    for payload in PAYLOADS[::7]:
        with case(payload):
            poisoned = page(payload)
            assert poisoned.skeleton == harmless.skeleton
            assert poisoned.code == harmless.code
            for text in strings(poisoned.data["figures"]):
                for tag in OWN_TAGS:
                    text = text.replace(tag, "")
                assert "<" not in text
