"""The record of average Grad-CAM: saved, loaded, estimated and drawn."""

import io
import json
import re
from dataclasses import fields, replace

import numpy as np
import pytest
from rich.console import Console

from naming import case
from observe.gradcam_cases import NAMES, poisoned, report
from report.parsed import Parsed, colours, strings
from report.payloads import PAYLOADS
from stiffnet.errors import CorruptFileError
from stiffnet.report.gradcam import CLASSES
from stiffnet.report.page import page as drawn
from stiffnet.report.text import clean, plain
from stiffnet.report.theme import TO_DARK
from stiffnet.results.gradcam import Estimate, GradcamReport

OWN_TAGS = {"<b>", "</b>", "<br>", "<extra>", "</extra>"}


def parsed(made):
    return Parsed(drawn([made], heading=made.facts["model"]))


def said(made):
    from stiffnet.report.gradcam import findings, headline

    return plain(" ".join([headline(made), *findings(made)]))


@pytest.mark.parametrize("options", [{}, {"zero": 2}, {"zero": 30}, {"classes": ()}], ids=str)
def test_saving_and_loading_changes_nothing(options):
    made = report(**options)
    loaded = GradcamReport.load(made.save("gradcam.json"))
    assert loaded.to_json() == made.to_json()
    for mine, yours in zip(made.views, loaded.views, strict=True):
        for each in fields(mine):
            np.testing.assert_array_equal(getattr(mine, each.name), getattr(yours, each.name))
    np.testing.assert_array_equal(made.class_mean, loaded.class_mean)
    assert loaded.label.dtype == loaded.images.explained.dtype == np.int64
    assert loaded.followed.value == pytest.approx(made.followed.value, nan_ok=True)


def test_a_changed_file_is_refused():
    path = report().save("gradcam.json")
    path.write_text(path.read_text().replace('"shift": 0.25', '"shift": 0.26'))
    with pytest.raises(CorruptFileError, match="is no Grad-CAM report of ours"):
        GradcamReport.load(path)


def test_errors_are_those_of_a_ratio():
    """Against the spread of the same ratio over many samples of images, and the jackknife."""
    made = report(200)
    view = made.images
    part, total = view.centre, view.total
    n = len(part)
    without = (part.sum() - part) / (total.sum() - total)
    jackknife = np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum())
    found = view.mass("centre")
    assert found.value == part.sum() / total.sum()
    assert found.error == pytest.approx(jackknife, rel=1e-2)
    estimates = [report(200, seed=10 * s).images.mass("centre").value for s in range(1, 60)]
    assert np.std(estimates, ddof=1) == pytest.approx(found.error, rel=0.3)


def test_the_error_of_how_far_it_follows_is_that_of_the_jackknife():
    made = report(60, middles=(0.5, 0.6, 0.5))
    found = made.followed

    def without(view, i):
        kept = {n: np.delete(getattr(view, n), i) for n in ("total", "centre", "moved", "x")}
        return replace(view, **kept, y=kept["x"], carried=kept["x"], explained=kept["total"])

    values = np.array([
        replace(made, views=tuple(without(view, i) for view in made.views)).followed.value
        for i in range(60)
    ])  # fmt: skip
    jackknife = np.sqrt(59 / 60 * ((values - values.mean()) ** 2).sum())
    assert 0 < found.value < 1
    assert found.error == pytest.approx(jackknife, rel=2e-2)


def test_an_interval_is_students():
    low, high = Estimate(1.0, 0.5, 3).interval
    assert (low, high) == pytest.approx((1 - 4.302653 * 0.5, 1 + 4.302653 * 0.5))
    assert np.isnan(Estimate(1.0, np.nan, 1).interval).all()


@pytest.mark.parametrize(
    ("middles", "words"),
    [
        ((0.5, 0.75, 0.5), "biased toward the centre"),
        ((0.5, 0.75, 0.5), "the mean map follows the data"),
        ((0.5, 0.5, 0.5), "the mean map stays where it was"),
        ((0.5, 0.6, 0.5), "follows the data part of the way"),
        ((0.5, 0.75, 0.5), "which cannot be told apart from the share for the images"),
        ((0.5, 0.75, 0.5), "a bias toward the centre without any data"),
        ((0.5, 0.75, 1.0), "what is in them adds to it"),
        ((0.0, 0.75, 0.5), "biased away from the centre"),
        ((0.625, 0.75, 0.5), "cannot be said"),
    ],
)
def test_the_verdict_is_computed(middles, words):
    assert words in said(report(40, middles=middles))


def test_maps_without_evidence_are_named():
    assert "2 of 30 images have a map that is zero everywhere" in said(report(zero=2))
    assert "No map has any evidence in it" in said(report(zero=30))
    assert "zero everywhere" not in said(report())


def test_one_image_has_no_error_and_no_verdict():
    assert "of unknown bias" in said(report(1))


@pytest.mark.usefixtures("short_plotly")
@pytest.mark.parametrize("options", [{}, {"zero": 30}, {"classes": ()}, {"many": 1}], ids=str)
def test_a_figure_for_each_place_and_a_place_for_each_figure(options):
    made = report(**options)
    page = parsed(made)
    places = [a["id"] for t, a in page.elements if "plot" in a.get("class", "").split()]
    assert sorted(places) == sorted(page.data["figures"])
    assert len(places) == 3 + len(made.class_label)
    json.dumps(page.data, allow_nan=False)
    used = set(colours(page.data["figures"]))
    assert {colour for colour in used if colour.startswith("#")} <= set(TO_DARK)


@pytest.mark.usefixtures("short_plotly")
def test_of_many_classes_those_with_the_most_images_are_drawn():
    names = tuple(f"class {i}" for i in range(40))
    page = drawn([report(70, classes=names)])
    assert len([p for p in Parsed(page).data["figures"] if p.startswith("class-")]) == CLASSES
    assert f"{CLASSES} of 40 classes" in page
    assert "class 39" in page  # in the table


@pytest.mark.usefixtures("short_plotly")
def test_pictures_are_the_mean_maps_over_their_average():
    made = report()
    z = parsed(made).data["figures"]["map-images"]["data"][0]["z"]
    np.testing.assert_allclose(z, made.images.mean / made.images.mean.mean(), rtol=1e-4)


@pytest.mark.usefixtures("short_plotly")
def test_what_a_user_wrote_is_text_and_nothing_else():
    harmless = parsed(poisoned("a harmless word"))
    for payload in PAYLOADS:
        page = parsed(poisoned(payload))
        with case(payload):
            assert page.skeleton == harmless.skeleton
            assert page.code == harmless.code
            for text in strings(page.data["figures"]):
                assert set(re.findall(r"<[^>]*>?", text)) <= OWN_TAGS
            assert clean(payload).strip() in [text.strip() for text in page.texts]


def test_a_terminal_of_eighty_columns_shows_it():
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(report(classes=("\x1b[31m" + "long name " * 9, *NAMES)))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert "biased toward the centre" in text
    assert "cat" in text


def test_a_row_for_each_kind_of_images_and_each_class():
    frame = report().to_frame()
    assert list(frame["of"]) == ["images", "shifted", "noise", *NAMES]
    assert frame["images"].tolist() == [30, 30, 30, 10, 10, 10]
    assert list(frame.columns) == [
        "of", "kind", "images", "zero", "centre", "centre_se", "moved", "moved_se", "x", "x_se",
        "y", "y_se",
    ]  # fmt: skip
