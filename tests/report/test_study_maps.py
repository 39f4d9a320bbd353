"""Mean maps on a study's page: of each row over its seeds, and what is no map is left out."""

from dataclasses import replace

import numpy as np
import pytest

from report import study_cases as cases
from report.parsed import Parsed
from stiffnet.report.page import page
from stiffnet.report.study_plots import map_figures

ABOUT = {"kind": "maps", "x": "", "y": "map", "heading": "Maps", "x_title": "", "y_title": ""}
ROWS = ("none", "se<b>")


def shown(made):
    report = cases.study(rows=ROWS, seeds=2)
    lines = [replace(x, values={**x.values, "map": made(i)}) for i, x in enumerate(report.lines)]
    return replace(report, lines=tuple(lines), picture=ABOUT)


def test_a_picture_is_the_mean_over_seeds_over_its_average():
    maps = np.random.default_rng(0).random((4, 3, 3))
    report = shown(lambda i: maps[i].tolist())
    figures = map_figures(report)
    assert [name for name, _ in figures] == list(ROWS)
    own = [i for i, line in enumerate(report.lines) if line.row == "none"]
    mean = maps[own].mean(axis=0)
    np.testing.assert_allclose(np.array(figures[0][1].data[0].z), mean / mean.mean(), rtol=1e-4)


@pytest.mark.usefixtures("short_plotly")
def test_the_page_has_a_place_for_each_of_them():
    drawn = Parsed(page([shown(lambda i: [[1.0, 2.0], [3.0, 4.0]])]))
    places = [a["id"] for _, a in drawn.elements if a.get("class") == "plot"]
    assert sorted(places) == sorted(drawn.data["figures"])
    assert any("Maps: se<b>" in text for text in drawn.texts)


def test_rows_may_have_maps_of_other_sizes():
    sizes = [2, 2, 3, 3]
    assert len(map_figures(shown(lambda i: np.eye(sizes[i]).tolist()))) == 2
    assert map_figures(shown(lambda i: np.eye(2 + i).tolist())) == []  # no mean over seeds


@pytest.mark.parametrize(
    "bad", [None, "x", [], [[]], [[None]], [["x"]], [[1.0], [1.0, 2.0]], [1.0], [[0.0]]]
)
def test_what_is_no_map_is_left_out(bad):
    assert map_figures(shown(lambda i: bad)) == []
    page([shown(lambda i: bad)])
