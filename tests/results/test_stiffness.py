"""A report keeps what it was given: save and load, counts, and breakdowns."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console

from reference import stiffness as reference
from stiffnet.errors import CorruptFileError, StepError, StorageError
from stiffnet.observe.measure import measure
from stiffnet.report.page import page
from stiffnet.results.stiffness import StiffnessReport
from stiffnet.sealed import sealed
from tolerances import RTOL
from trajectory.networks import known_rates


@pytest.fixture
def report():
    """Two stages (the width changes), labels, and rates that depend on the input."""
    torch.manual_seed(0)
    blocks = [*known_rates(0.5, 1.0, 2.0)]
    for block in blocks:
        block.rate = torch.nn.Sequential(block.rate, torch.nn.Tanh())
    model = torch.nn.Sequential(
        *blocks, torch.nn.Linear(6, 4), *known_rates(0.3, 0.2, 0.9, width=4)
    ).double()
    x = torch.rand(30, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    y = torch.arange(30) % 3
    return measure(model, [(x, y)], classes=("a", "b"), facts={"model": "two stages"})


def counted(report):
    columns = [i for i, step in enumerate(report.steps) if step.counted]
    return report.nsi[:, columns], [report.steps[i].stage for i in columns]


def test_what_was_saved_is_loaded(report, tmp_path):
    twin = StiffnessReport.load(report.save(tmp_path / "x.json"))
    assert twin.steps == report.steps
    assert (twin.tns, twin.tns_se, twin.samples) == (report.tns, report.tns_se, report.samples)
    assert (twin.accuracy, twin.classes, twin.facts) == (
        report.accuracy, report.classes, dict(report.facts),
    )  # fmt: skip
    for name in ("number", "nsi", "label", "loss", "correct"):
        np.testing.assert_array_equal(getattr(twin.kept, name), getattr(report.kept, name))
    pd.testing.assert_frame_equal(twin.to_frame(), report.to_frame())
    pd.testing.assert_frame_equal(twin.by_label(), report.by_label())


def test_the_file_is_strict_json(report, tmp_path):
    def refuse(constant):
        raise AssertionError(constant)

    text = report.save(tmp_path / "x.json").read_text()
    assert json.loads(text, parse_constant=refuse)["accuracy"] == report.accuracy


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: text.replace("version 1", "version 0"),
        lambda text: text.replace('"samples"', '"simples"'),
        lambda text: text.replace('"<f8"', '"<O8"'),
        lambda text: "\udcff",
    ],
)
def test_a_damaged_file_is_refused(report, tmp_path, spoil):
    path = report.save(tmp_path / "x.json")
    path.write_bytes(spoil(path.read_text()).encode(errors="surrogateescape"))
    with pytest.raises(CorruptFileError, match=r"x\.json is no stiffness report.*Measure again"):
        StiffnessReport.load(path)


def test_a_file_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(StorageError, match="could not be read"):
        StiffnessReport.load(tmp_path / "none.json")


@pytest.mark.parametrize(("m1", "m2"), [(0.0, 0.0), (0.2, 0.5), (1.0, 0.0)])
def test_counts_agree_with_the_reference(report, m1, m2):
    values, stages = counted(report)
    assert report.delta(m1, m2).value == pytest.approx(
        reference.delta_samples(values, stages, m1, m2).mean()
    )
    assert report.proportion(m1, m2).value == pytest.approx(
        reference.proportion_samples(values, stages, m1, m2).mean()
    )


def test_stages_are_runs_of_one_shape(report):
    table = report.stages()
    assert table["shape"].tolist() == ["6", "4"]
    assert table["steps"].tolist() == [3, 3]
    assert table["counted"].tolist() == [2, 2]
    values, stages = counted(report)
    own = [reference.tns(values[:, [s == k for s in stages]], [k] * 2).mean() for k in (0, 1)]
    np.testing.assert_allclose(table["tns"], own)


def test_labels_without_a_name_go_by_their_number(report):
    table = report.by_label()
    assert table["name"].tolist() == ["a", "b", "2"]
    rows = report.kept.label == 1
    assert table["tns"][1] == pytest.approx(report.sample_tns[rows].mean())
    assert table["accuracy"][1] == report.kept.correct[rows].mean()


def test_the_grid_of_the_surfaces_begins_at_zero_and_holds_one(report):
    view = report.view()
    assert view.m1[0] == view.m2[0] == 0
    assert 1.0 in view.m1
    assert view.delta[0, 0] == 1.0


def test_the_curves_are_the_extremes(report):
    view = report.view()
    assert view.stiffest[0].tns == report.sample_tns.max()
    assert view.calmest[0].tns == report.sample_tns.min()


def test_without_labels_there_is_no_breakdown_and_no_relation():
    report = measure(known_rates(0.5, 1.0), [torch.rand(3, 6, dtype=torch.float64)])
    with pytest.raises(StepError, match="no labels"):
        report.by_label()
    with pytest.raises(StepError, match="no loss"):
        report.relate()
    assert report.view().labels is None


def shown(report):
    """What a terminal shows, in one line."""
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        console.print(report)
    return " ".join(capture.get().split())


def test_where_no_step_counts_there_is_no_total_anywhere(tmp_path, short_plotly):
    x, y = torch.rand(4, 6, dtype=torch.float64), torch.tensor([0, 1, 0, 1])
    report = measure(known_rates(0.5), [(x, y)])
    assert (report.tns, report.tns_se, report.increment_total) == (None, None, None)
    assert report.tns_steps == 0
    for ask in (lambda: report.delta(0, 0), lambda: report.sample_tns):
        with pytest.raises(StepError, match="No step of this network counts"):
            ask()
    assert report.by_label()["tns"].isna().all()
    assert "TNS" not in report.relate()["step"].tolist()
    assert StiffnessReport.load(report.save(tmp_path / "x.json")).tns is None
    assert '"tns": null' in (tmp_path / "x.json").read_text()
    page = report.html(tmp_path / "x.html").read_text()
    for text in (page, shown(report)):
        assert "has no total neural stiffness (TNS)" in text
    assert report.view().stiffest == ()


def test_a_total_that_rests_on_nothing_is_said_to(tmp_path, short_plotly):
    """Two steps a stage: one counts, which is its own mean, so that no rectangle has an area."""
    blocks = (*known_rates(0.5, 1.0), torch.nn.Linear(6, 4), *known_rates(0.3, 0.2, width=4))
    report = measure(torch.nn.Sequential(*blocks).double(), [torch.rand(3, 6).double()])
    assert (report.tns, report.tns_steps) == (0.0, 0)
    page = report.html(tmp_path / "x.html").read_text()
    for text in (page.replace("<strong>", "").replace("</strong>", ""), shown(report)):
        assert "rests on no step and is 0 whatever the network does" in text
    assert report.view().stiffest == report.view().calmest == ()


def test_the_steps_that_the_total_rests_on_are_in_the_record_and_shown(
    report, tmp_path, short_plotly
):
    assert report.tns_steps == 4
    assert json.loads(report.to_json())["summary"]["tns_steps"] == 4
    page = report.html(tmp_path / "x.html").read_text()
    for text in (page, shown(report)):
        assert "4 of 6 steps, in 2 of 2 stages" in text


GATED = {"increment_tns", "increment_tns_se"}
LATER = {"counted_steps", "tns_steps", *GATED}


def written_earlier(report, path):
    """Write a report as the first version did."""
    content = json.loads(report.to_json())
    del content["sha256"], content["notes"]
    content["summary"] = {k: v for k, v in content["summary"].items() if k not in LATER}
    path.write_text(sealed(content))
    return path


@pytest.mark.parametrize("step_size", [None, 0.5])
def test_an_older_file_is_still_read(tmp_path, step_size, short_plotly):
    x = torch.rand(3, 6, dtype=torch.float64)
    report = measure(known_rates(0.5, 1.0, 3.0, step_size=step_size), [x])
    twin = StiffnessReport.load(written_earlier(report, tmp_path / "old.json"))
    assert (twin.tns, twin.tns_steps, twin.notes) == (report.tns, 2, ())
    assert report.increment_total is not None
    assert twin.increment_total == (None if step_size else report.increment_total)
    assert twin.html(tmp_path / "x.html").stat().st_size > 1000


@pytest.mark.parametrize("samples", [1, 2, 4, 20, 140])
def test_a_quantile_does_not_depend_on_how_much_was_kept(samples):
    """The values lie far apart, so that halfway between two would be another number."""
    size = 1.2 ** (torch.arange(samples, dtype=torch.float64)[:, None] % 20)
    model = known_rates(0.5, 1.0)
    model[1].rate = Cubed()
    x = torch.rand(1, 6, dtype=torch.float64) * size / size.max()
    whole, parts = (measure(model, [x], keep=keep).to_frame() for keep in (samples, samples // 2))
    for name in ("q05", "q25", "median", "q75", "q95"):
        np.testing.assert_allclose(
            parts[f"nsi_{name}"], whole[f"nsi_{name}"], rtol=RTOL["quantile"]
        )


class Cubed(torch.nn.Module):
    def forward(self, x):
        return x**3


def test_what_is_shown_is_counted_once(report, tmp_path, monkeypatch, short_plotly):
    """By the terminal, the page, and pages under other titles."""
    counted = []

    def count(self):
        counted.append(self)
        return relate(self)

    relate = StiffnessReport.relate
    monkeypatch.setattr(StiffnessReport, "relate", count)
    shown(report)
    report.html(tmp_path / "x.html")
    assert "another title" in page([report], titles=["another title"])
    assert report.view("another title").title == "another title"
    assert report.view().title == "two stages"
    assert counted == [report]


def test_the_stiffest_steps_are_the_counted_ones_of_the_largest_mean(report):
    found = report.stiffest_steps(2)
    counted = report.to_frame().query("counted").sort_values("nsi_mean", ascending=False)
    pd.testing.assert_frame_equal(found, counted.head(2))
    assert len(report.stiffest_steps(99)) == 4


def test_the_file_says_fold_where_a_site_says_entries(report):
    """As files did before, so that either version reads the other's."""
    [site, *_] = [step["state_at"] for step in json.loads(report.to_json())["steps"]]
    assert site["fold"] == report.steps[0].state_at.entries
    assert "entries" not in site


def test_several_reports_share_a_page(report, short_plotly):
    text = page([report, report], titles=["one <b>", "two"], heading="h")
    assert "one &lt;b&gt;" in text
    assert "two" in text


def test_a_report_prints_as_one_line_whatever_its_classes():
    classes = [f"class {number}" for number in range(1000)]
    report = measure(known_rates(0.5, 2.0), [torch.rand(2, 6).double()], classes=classes)
    total = f"{report.tns:.4g}"
    assert repr(report) == f"StiffnessReport('Sequential', samples=2, steps=2, tns={total})"
