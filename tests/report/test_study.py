"""Pages of studies and runs: every claim with its verdict, every number beside the published."""

import base64
from dataclasses import replace

import numpy as np
import pytest

from report import study_cases as cases
from report.parsed import Parsed
from stiffnet.report.page import json_block, page as drawn
from stiffnet.report.study import answer
from stiffnet.report.text import plain
from stiffnet.report.training import sentence
from stiffnet.results.study import StudyReport
from stiffnet.results.training import TrainingLog


@pytest.fixture(autouse=True)
def _short(short_plotly):
    pass


def text_of(results, **options):
    return " ".join("".join(Parsed(drawn(results, **options)).texts).split())


def test_the_top_says_what_was_asked_and_the_answer():
    one = cases.study()
    assert plain(answer([one])).startswith(f"{one.claim} {one.verdict.capitalize()}. ")
    many = plain(answer(cases.several()))
    held = sum(each.verdict == "held" for each in cases.several())
    assert f"Of 6 claims of a paper, run again here: {held} held" in many
    assert "1 rows failed" not in many
    assert "One row failed." in many


def test_a_claim_that_was_run_twice_is_one_claim():
    made = cases.study()
    twice = plain(answer([made, replace(made, scale="small")]))
    assert twice == f"Of 2 verdicts on a claim of a paper, run again here: 2 {made.verdict}."
    three = plain(answer([made, replace(made, scale="small"), replace(made, name="asr-table3")]))
    assert three.startswith("Of 3 verdicts on 2 claims of a paper, run again here: ")


@pytest.mark.parametrize("made", cases.several(), ids=lambda made: made.name)
def test_a_section_has_the_claim_the_numbers_the_verdict_and_why(made):
    text = text_of([made], heading="x")
    assert made.claim in text
    assert f"{made.verdict.capitalize()}. {made.why}" in text
    for row in made.summary().itertuples():
        assert f"{row.row} {row.mean:.2f} ± {row.std:.2f} {row.seeds} {row.published:.2f}" in text
    for each in made.comparisons:
        assert each.sentence in text
        assert each.why in text or each.low is not None
    for line in made.failed:
        assert line.error in text


def test_differences_are_drawn_with_their_intervals_and_what_was_published():
    made = cases.study()
    figure = Parsed(drawn([made])).data["figures"]["study-0-differences"]
    traces = {trace["name"]: trace for trace in figure["data"]}
    count = sum(len(traces[name]["x"]) for name in traces if name != "published")
    assert count == len(made.comparisons)
    assert traces["published"]["x"] == pytest.approx([each.published for each in made.comparisons])
    [held] = [trace for name, trace in traces.items() if name == "measured: held"]
    first = made.comparisons[held["y"][0]]
    assert held["error_x"]["array"][0] == pytest.approx(first.high - first.estimate, rel=1e-4)


def test_surfaces_are_means_over_seeds_on_the_same_axes():
    made = cases.study(picture="surfaces", rows=("none", "se"), failed=True)
    figures = Parsed(drawn([made])).data["figures"]
    drawn_here = [figures[f"study-0-picture-{i}"] for i in (0, 1)]
    for row, figure in zip(("none", "se"), drawn_here, strict=True):
        known = [line.values for line in made.lines if line.row == row and not line.error]
        mean = np.mean([values["delta"] for values in known], axis=0)
        assert len(known) == (3 if row == "se" else 4)
        np.testing.assert_allclose(figure["data"][0]["z"], mean.T, rtol=1e-4)
        assert figure["data"][0]["x"] == known[0]["m1"]
    one, other = ([f["layout"][axis]["range"] for axis in ("xaxis", "yaxis")] for f in drawn_here)
    assert one == other
    assert 0 < one[0][1] < 4


def test_comparisons_of_other_metrics_are_not_drawn_on_the_same_axis():
    made = cases.study()
    other = replace(made.comparisons[0], metric="loss", estimate=1e6)
    figures = Parsed(drawn([replace(made, comparisons=(other, *made.comparisons[1:]))])).data[
        "figures"
    ]
    points = [x for trace in figures["study-0-differences"]["data"] for x in trace["x"]]
    assert max(points) < 1e3


def test_a_table_of_several_columns_has_what_was_published_once_before_them():
    made = cases.columns_study()
    text = text_of([made], heading="x")
    heads = "S, published S, slices S, branch P, published P, slices P, branch images"
    assert heads in text
    frame = made.to_frame()
    for i, (row, own) in enumerate(frame.groupby("row", sort=False)):
        written = [row, f"{2.25 + i:.2f}"]
        for column in made.columns[:4]:
            values, clear = own[column.metric].dropna(), int((own[column.p] <= 0.05).sum())
            cell = f"{values.mean():.2f} ± {values.std():.2f} ({clear}/{len(values)})"
            written.append(cell.replace("-", "−") if len(values) else "–")
        written.insert(4, f"{2.25 + i:.2f}")
        assert " ".join([*written, "40"]) in text


def test_counts_are_written_whole_and_as_counts():
    made = cases.columns_study(exact=True)
    text = text_of([made], heading="x")
    first = made.lines[0].values
    assert f"block 1 4 {first['slices_S']:,} {first['branch_S']:,} 4" in text
    assert "(ResNet-18 on digits), which depend on no seed." in text
    assert "two-sided test" not in text


def test_what_was_published_keeps_its_decimals_where_every_row_failed():
    made = cases.columns_study()
    lines = tuple(replace(line, values={}, error="killed.") for line in made.lines)
    assert "block 1 2.25 – – 2.25 – –" in text_of([replace(made, lines=lines)], heading="x")


def test_columns_are_drawn_along_the_rows_beside_what_was_published():
    figures = Parsed(drawn([cases.columns_study()], heading="x")).data["figures"]
    assert {"study-0-picture-0", "study-0-picture-1"} <= set(figures)
    traces = {trace["name"]: trace for trace in figures["study-0-picture-0"]["data"]}
    assert list(traces) == ["slices", "branch", "published"]
    assert traces["published"]["y"] == [2.25 + i for i in range(8)]
    own = cases.columns_study().to_frame().groupby("row", sort=False)["slices_S"]
    assert traces["slices"]["y"] == pytest.approx(own.mean().tolist(), rel=1e-4)
    assert traces["slices"]["error_y"]["array"] == pytest.approx(own.std().tolist(), rel=1e-4)
    assert traces["branch"]["y"][2] is None


def test_eigenvalues_are_drawn_with_the_disc_for_each_way():
    made = cases.columns_study(picture="plane")
    figures = Parsed(drawn([made], heading="x")).data["figures"]
    for i, way in enumerate(("slices", "branch")):
        disc, *points = figures[f"study-0-picture-{i}"]["data"]
        assert disc["name"].startswith("Euler's disc")
        assert sum(len(trace["x"]) for trace in points) == 40
        assert sorted(x for trace in points for x in trace["x"]) == pytest.approx(
            sorted(made.lines[0].values[f"{way}_real"]), rel=1e-3
        )


def test_the_table_leads_to_every_study_and_the_top_of_the_page_to_a_few():
    for many in (2, 12):
        page = drawn([cases.study(f"asr-table{i}", seed=i) for i in range(many)], heading="x")
        top = page.split("<nav", 1)[1].split("</nav>")[0]
        for i in range(many):
            assert f'<a href="#study-{i}">asr-table{i}</a></th>' in page
            assert f'<section id="study-{i}"' in page
            assert (f'href="#study-{i}"' in top) is (many == 2)
        assert 'href="#tables"' in top


def test_what_was_measured_is_said_beside_what_was_published():
    text = text_of([cases.study()], heading="x")
    assert "Accuracy, % (ResNet-20 on digits): mean ± standard deviation over seeds. The" in text
    assert "compare differences, not levels" in text
    assert "not levels" not in text_of([replace(cases.study(), scale="paper")], heading="x")
    assert "not levels" not in text_of([replace(cases.study(), published=())], heading="x")


def test_studies_of_one_name_are_told_apart_by_their_scale():
    both = [cases.study(), replace(cases.study(), scale="small")]
    page = drawn(both, heading="x")
    assert "stepnet-table1, demo" in page
    assert "stepnet-table1, small" in page


def test_a_study_comes_back_as_it_was_saved(tmp_path):
    for made in (*cases.several(), cases.columns_study(), cases.columns_study(exact=True)):
        assert StudyReport.load(made.save(tmp_path / "study.json")) == made
    log = cases.log()
    assert TrainingLog.load(log.save(tmp_path / "log.json")) == log


def test_a_study_without_any_value_is_drawn():
    made = cases.study()
    lines = tuple(replace(line, values={}, error="killed.") for line in made.lines)
    none = replace(made, lines=lines, comparisons=(), verdict="undecided", why="Nothing.")
    assert "killed." in text_of([none], heading="x")
    assert "killed." in text_of([replace(none, picture=cases.several()[1].picture)], heading="x")
    assert "killed." in text_of([replace(none, picture=cases.several()[2].picture)], heading="x")
    assert "killed." in text_of([replace(none, picture=cases.several()[3].picture)], heading="x")


def test_runs_are_drawn_in_the_same_charts():
    logs = [cases.log(seed=i) for i in range(3)] + [cases.log("resnet56_cifar", tns=False)]
    page = Parsed(drawn(logs, heading="x"))
    assert set(page.data["figures"]) == {"training-accuracy", "training-loss", "training-tns"}
    names = {trace["name"] for trace in page.data["figures"]["training-accuracy"]["data"]}
    assert "resnet20_cifar on cifar10:DIR, seed 2" in names
    assert len(page.data["figures"]["training-tns"]["data"]) == 3


def test_a_run_says_how_far_it_came():
    log = cases.log()
    accuracy = 100 * log.rows[-1]["test_top1"]
    assert plain(sentence(log)) == (
        f"10 epochs (finished), with {accuracy:.2f} % of the test images right."
    )
    assert "no epoch" in sentence(replace(log, rows=()))
    assert "resnet20_cifar" in text_of([log])


def test_a_page_of_many_runs_and_rows_stays_small():
    logs = [cases.log(seed=i, epochs=50) for i in range(60)]
    rows = tuple(f"row {i}" for i in range(400))
    page = drawn([cases.study(rows=rows, seeds=5), *logs], heading="x")
    assert len(page) < 10e6
    assert "first 24 of 60 runs" in page


def test_numbers_of_a_chart_are_plain_and_rounded_however_they_were_given():
    """Plotly packs arrays, which would keep all digits and hide the numbers from the reader."""
    made = cases.study(picture="curves")
    figures = Parsed(drawn([made])).data["figures"]
    values = figures["study-0-picture"]["data"][0]["y"]
    expected = np.mean([line.values["nsi"] for line in made.lines if line.row == "none"], axis=0)
    assert values == [float(f"{value:.5g}") for value in expected]
    packed = {"dtype": "f8", "bdata": base64.b64encode(np.array([[1.0, np.nan]])).decode(),
              "shape": "1, 2"}  # fmt: skip
    assert str(json_block(packed)) == "[[1.0,null]]"


@pytest.mark.parametrize(
    "payload", ["<script>alert(1)</script>", "</script>", "<b>$x$</b>", "\x1b[31m"]
)
def test_hostile_columns_are_shown_and_do_nothing(payload):
    harmless, hostile = (Parsed(drawn([cases.poisoned_columns(text)], heading="x"))
                         for text in ("harmless", payload))  # fmt: skip
    assert hostile.skeleton == harmless.skeleton
    assert hostile.code == harmless.code
    for figure in hostile.data["figures"].values():
        for trace in figure["data"]:
            assert "<" not in trace["name"]
            assert "$" not in trace["name"]


def test_verdicts_at_demo_scale_are_said_to_be_about_small_networks():
    report = cases.study()
    said = "Verdicts are about these networks"
    assert said in text_of([report], heading="x")
    assert said not in text_of([replace(report, scale="small"), report], heading="x")


def test_what_a_verdict_leaves_out_is_said_beside_its_interval():
    made = cases.study()
    remark = "There is no value for seed 3."
    first = replace(made.comparisons[0], remark=remark)
    assert remark not in text_of([made], heading="x")
    assert remark in text_of([replace(made, comparisons=(first,))], heading="x")


def test_a_value_that_does_not_exist_is_no_seed():
    made = cases.study(seeds=4)
    lines = [replace(line, values={**line.values, "accuracy": None}) if line.seed == 3 else line
             for line in made.lines]  # fmt: skip
    fewer = replace(made, lines=tuple(lines)).summary()
    assert set(made.summary()["seeds"]) == {4}
    assert set(fewer["seeds"]) == {3}
    first = [line.values["accuracy"] for line in made.lines[:3]]
    assert fewer["mean"].iloc[0] == pytest.approx(np.mean(first))


def test_a_chart_of_differences_shows_zero_and_what_its_colours_mean():
    made = cases.study(better=40.0)
    layout = Parsed(drawn([made])).data["figures"]["study-0-differences"]["layout"]
    left, right = layout["xaxis"]["range"]
    assert left < 0 < max(each.high for each in made.comparisons) < right
    assert layout["showlegend"]
    words = [(each["text"], each["y"]) for each in layout["annotations"]]  # above, not beside
    assert words == [(text, i) for i, text in enumerate(layout["yaxis"]["ticktext"])]
    assert not layout["yaxis"]["showticklabels"]


def test_marks_and_columns_that_nothing_has_are_not_spoken_of():
    made = cases.study()
    bare = [replace(each, published=None) for each in made.comparisons]
    for report, known in ((made, True), (replace(made, comparisons=tuple(bare)), False)):
        text = text_of([report], heading="x")
        assert ("Diamonds: what was published." in text) is known
        assert ("Difference 95 % interval Published p" in text) is known
        assert ("Difference 95 % interval p" in text) is not known
    none = dict.fromkeys(("estimate", "low", "high", "p", "published"))
    counted = tuple(replace(each, **none) for each in made.comparisons)
    text = text_of([replace(made, comparisons=counted)], heading="x")
    assert "Claimed Verdict Why" in text


@pytest.mark.parametrize("picture", ["curves", "points", "surfaces"])
def test_a_picture_says_what_its_marks_are(picture):
    text = text_of([cases.study(picture=picture)], heading="x")
    said = "A point is a seed." if picture == "points" else "Means over seeds"
    assert said in text
