"""Records of spectra keep every number, and their tables are what NumPy makes of them."""

import io
import json
import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from naming import case
from observe.spectrum_cases import changing, poisoned, report, spectrum
from report.parsed import Parsed, colours, strings
from report.payloads import PAYLOADS
from stiffnet.errors import CorruptFileError, StepError
from stiffnet.report.page import page as drawn
from stiffnet.report.spectra_plots import plane_figure, real_parts_figure, thinned
from stiffnet.report.text import clean
from stiffnet.report.theme import TO_DARK
from stiffnet.results.spectra import SpectrumReport
from stiffnet.results.spectrum import Spectrum
from tolerances import RTOL

OWN_TAGS = {"<b>", "</b>", "<br>", "<extra>", "</extra>"}
FIGURES = ("stiffness_index", "absolute_index", "negative_share", "real_extent", "radius")


def assert_same(one, other):
    for each in fields(one):
        mine, yours = getattr(one, each.name), getattr(other, each.name)
        if isinstance(mine, np.ndarray):
            assert mine.dtype == yours.dtype
            np.testing.assert_array_equal(mine, yours)
        else:
            assert mine == yours


@pytest.mark.parametrize("made", [spectrum(), changing("down"), spectrum(norm=None, cut="")])
def test_saving_and_loading_a_spectrum_changes_nothing(made):
    loaded = Spectrum.load(made.save("spectrum.json"))
    assert_same(made, loaded)
    assert loaded.to_json() == made.to_json()


def test_saving_and_loading_a_report_changes_nothing():
    made = report()
    loaded = SpectrumReport.load(made.save("spectra.json"))
    assert (loaded.images, loaded.classes, loaded.facts) == (made.images, made.classes, made.facts)
    assert loaded.steps == made.steps
    for step in made.steps:
        for one, other in zip(made.spectra[step], loaded.spectra[step], strict=True):
            assert_same(one, other)
    assert loaded.to_json() == made.to_json()


@pytest.mark.parametrize("where", range(0, 4000, 331))
def test_a_changed_file_is_refused(where):
    text = spectrum().save("spectrum.json").read_bytes()
    where %= len(text)
    other = b"0" if text[where : where + 1] != b"0" else b"1"
    Path("spectrum.json").write_bytes(text[:where] + other + text[where + 1 :])
    with pytest.raises(CorruptFileError, match="is no spectrum of ours, or it is damaged"):
        Spectrum.load("spectrum.json")


def test_the_figures_are_those_of_the_eigenvalues():
    values = np.array([-3 + 1j, -3 - 1j, 0, 2, 0.5])
    made = spectrum(eigenvalues=values, count=5)
    assert (made.max_real, made.min_real) == (2.0, -3.0)
    assert made.stiffness_index == 2 / -3
    assert made.absolute_index == 2 / 3
    assert made.real_extent == 3.0
    assert made.radius == abs(-3 + 1j)
    assert made.non_normality == made.norm / abs(-3 + 1j)
    frame = made.to_frame()
    np.testing.assert_array_equal(frame["real"] + 1j * frame["imaginary"], values)
    np.testing.assert_array_equal(frame["from_centre"], np.abs(1 + values))


@pytest.mark.parametrize("values", [[0, 1, 2], [0, 0], [-1e-12, 1], []])
def test_s_is_not_defined_where_the_smallest_real_part_is_zero(values):
    made = spectrum(eigenvalues=np.array(values, complex))
    assert made.stiffness_index is None
    assert made.absolute_index is None


def test_s_is_positive_where_all_real_parts_are_of_one_sign():
    assert spectrum(eigenvalues=np.array([-4.0 + 0j, -1])).stiffness_index == 0.25
    assert spectrum(eigenvalues=np.array([4.0 + 0j, 1])).stiffness_index == 4


def test_a_row_for_each_step_and_image():
    made = report()
    frame = made.to_frame()
    assert len(frame) == 4 * 6
    assert list(frame["image"][:6]) == [0, 7, 14, 21, 28, 35]
    assert frame["negative_share"][frame["step"] == "layer2.0"].isna().all()
    one = frame[(frame["step"] == "layer1.1") & (frame["image"] == 14)].iloc[0]
    assert one["radius"] == made.spectra["layer1.1"][2].radius


def test_means_by_step_are_numpys():
    made = report()
    table = made.by_step().set_index("step")
    assert list(table.index) == list(made.steps)
    for step in ("layer1.0", "layer1.1", "layer2.1"):
        for figure in FIGURES:
            values = [getattr(each, figure) for each in made.spectra[step]]
            assert table.loc[step, f"{figure}_mean"] == pytest.approx(np.mean(values))
            assert table.loc[step, f"{figure}_std"] == pytest.approx(np.std(values, ddof=1))
    assert list(table["defined"]) == [6, 6, 0, 6]
    assert np.isnan(table.loc["layer2.0", "radius_mean"])


def test_a_spectrum_without_s_is_left_out_of_its_mean_and_counted():
    made = report()
    first, *others = made.spectra["layer1.0"]
    without = replace(first, eigenvalues=np.abs(first.eigenvalues) + 0j)
    changed = replace(made, spectra=made.spectra | {"layer1.0": (without, *others)})
    row = changed.by_step().iloc[0]
    assert row["defined"] == 5
    assert row["stiffness_index_mean"] == pytest.approx(
        np.mean([each.stiffness_index for each in others])
    )
    assert row["radius_mean"] == pytest.approx(made.by_step().iloc[0]["radius_mean"])


def test_a_label_that_is_no_class_is_called_by_its_number():
    made = report(images=4)
    seen = tuple(
        replace(each, label=label) for each, label in zip(made.images, (-1, 0, 1, 2), strict=True)
    )
    assert replace(made, images=seen).by_label()["name"].tolist() == ["-1", "cat", "dog", "2"]


def test_means_by_label_are_numpys():
    made = report()
    table = made.by_label()
    assert list(table["name"]) == ["cat", "dog"]
    assert list(table["images"]) == [3, 3]
    for label in (0, 1):
        values = [
            each.real_extent
            for found in made.spectra.values()
            for image, each in zip(made.images, found, strict=True)
            if image.label == label and each.count
        ]
        assert table["real_extent_mean"][label] == pytest.approx(np.mean(values))


def test_relations_are_scipys():
    made = report(images=9)
    table = made.relate()
    assert set(table["figure"]) == set(FIGURES)
    assert "layer2.0" not in set(table["step"])
    losses = [image.loss for image in made.images]
    values = [each.negative_share for each in made.spectra["layer1.1"]]
    [row] = table[
        (table["figure"] == "negative_share") & (table["step"] == "layer1.1")
        & (table["target"] == "loss")
    ].to_dict("records")  # fmt: skip
    wanted = stats.pearsonr(values, losses)
    assert row["pearson"] == pytest.approx(wanted.statistic, rel=RTOL["merge"])
    assert row["pearson_p"] == pytest.approx(wanted.pvalue, rel=1e-6)
    assert row["pearson_p"] <= row["pearson_holm"] <= 3 * row["pearson_p"] + 1e-12


def test_without_labels_there_is_nothing_to_group_or_relate():
    made = report(labelled=False)
    with pytest.raises(StepError, match="had no labels"):
        made.by_label()
    with pytest.raises(StepError, match="no loss to relate"):
        made.relate()


def parsed(made):
    return Parsed(drawn([made], heading=made.facts["model"]))


MADE = {
    "whole": report(),
    "without labels": report(labelled=False),
    "one image": report(images=1),
    "one step": report(["a"]),
    "one spectrum": spectrum(),
    "only changes": replace(report(), spectra={"a": (changing("a"),) * 6}),
    "zeros": spectrum(eigenvalues=np.zeros(40, complex)),
    "iterations": spectrum(method="krylov", negative_share=None, outside_share=None),
}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
@pytest.mark.usefixtures("short_plotly")
def test_a_page_has_a_figure_for_each_place_in_colours_of_both_themes(made):
    page = parsed(made)
    places = [a["id"] for _, a in page.elements if "plot" in a.get("class", "").split()]
    assert sorted(places) == sorted(page.data["figures"])
    used = set(colours(page.data["figures"]))
    assert {colour for colour in used if colour.startswith("#")} <= set(TO_DARK)
    identifiers = page.attribute("id")
    assert "planes" in identifiers
    assert len(set(identifiers)) == len(identifiers)


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_a_terminal_of_eighty_columns_shows_it(made):
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(made)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "nan" not in text


@pytest.mark.usefixtures("short_plotly")
def test_what_a_user_wrote_is_text_and_nothing_else():
    harmless = parsed(poisoned("a harmless word"))
    for payload in PAYLOADS:
        page = parsed(poisoned(payload))
        with case(payload):
            assert page.skeleton == harmless.skeleton
            assert page.comments == harmless.comments
            assert page.code == harmless.code
            for text in strings(page.data["figures"]):
                assert set(re.findall(r"<[^>]*>?", text)) <= OWN_TAGS
                assert "$" not in text
            assert clean(payload).strip() in [text.strip() for text in page.texts]
            json.dumps(page.data, allow_nan=False)


def test_a_terminal_is_not_told_what_to_do():
    console = Console(width=80, record=True, file=io.StringIO())
    for payload in PAYLOADS:
        console.print(poisoned(payload))
    assert "\x1b" not in console.export_text()


def test_many_eigenvalues_are_thinned_out_and_the_extremes_stay():
    random = np.random.default_rng(0)
    values = np.concatenate([random.normal(size=9000) + 1j * random.normal(size=9000), [0] * 500])
    values[[17, 4000]] = 50, -60 + 3j
    chosen = thinned(values, 1000)
    assert len(chosen) <= 1000
    assert len(np.unique(chosen)) == len(chosen)
    assert set(chosen) <= set(values)
    for part in (values.real, values.imag):
        ends = [values[part.argmax()], values[part.argmin()]]
        assert set(ends) <= set(chosen)
    assert np.count_nonzero(chosen == 0) == 1
    assert set(thinned(values[:50])) == set(values[:50])


def test_bars_hold_every_eigenvalue_but_zeros_and_none_holds_both_signs():
    made = [spectrum(seed=i, size=400) for i in range(3)]
    bars = real_parts_figure(made).data
    every = np.concatenate([each.eigenvalues for each in made]).real
    negative, positive = (sum(y for y in trace.y if y) * len(made) for trace in bars)
    assert negative == pytest.approx((every < 0).sum())
    assert positive == pytest.approx((every > 0).sum())


def test_points_are_told_apart_by_the_disc():
    disc, inside, outside = plane_figure([spectrum(size=200)]).data
    np.testing.assert_allclose(np.hypot(disc.x + 1, disc.y), 1)
    assert (np.hypot(inside.x + 1, inside.y) <= 1 + 1e-9).all()
    assert (np.hypot(outside.x + 1, outside.y) > 1).all()
