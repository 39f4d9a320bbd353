import numpy as np
import pytest

from report.cases import RESNET, VIT, view
from stiffnet.report import stiffness_plots as plots, surfaces
from stiffnet.report.theme import LIGHT


def trace(figure, name):
    (found,) = [item for item in figure.data if item.name == name]
    return found


def known(values):
    return [value for value in values if value is not None]


@pytest.mark.parametrize("layout", [RESNET, VIT, ((1, (8,)),)], ids=["stages", "one", "one step"])
def test_the_line_is_the_median_and_breaks_between_stages(layout):
    shown = view(layout, samples=12)
    line = trace(plots.nsi_figure([shown]), "median")
    assert known(line.y) == list(shown.steps["nsi_median"])
    assert known(line.x) == list(range(1, len(shown.steps) + 1))
    assert len(line.x) - len(known(line.x)) == len(layout) - 1


def test_hollow_points_are_the_steps_that_are_not_counted():
    shown = view(RESNET, samples=12)
    line = trace(plots.nsi_figure([shown]), "median")
    points = [(x, c) for x, c in zip(line.x, line.marker.color, strict=True) if x is not None]
    hollow = {x - 1 for x, colour in points if colour == LIGHT["paper"]}
    assert hollow == set(np.flatnonzero(~shown.steps["counted"]))


def test_each_band_holds_its_median():
    shown = view(RESNET, samples=50)
    figure = plots.nsi_figure([shown])
    half, most = trace(figure, "middle half"), trace(figure, "90 % of images")
    for step, row in shown.steps.iterrows():
        for band, low, high in ((half, "nsi_q25", "nsi_q75"), (most, "nsi_q05", "nsi_q95")):
            at = [y for x, y in zip(band.x, band.y, strict=True) if x == step + 1]
            assert sorted(at) == [row[low], row[high]]
            assert at[0] <= row["nsi_median"] <= at[1]


def test_the_increment_is_drawn_only_where_it_differs():
    plain, gated = (plots.nsi_figure([view(samples=9, attention=a)]) for a in (False, True))
    assert "increment (mean)" not in [trace.name for trace in plain.data]
    assert "increment (mean)" in [trace.name for trace in gated.data]


def test_stages_are_labelled_with_their_shape():
    figure = plots.nsi_figure([view(RESNET, samples=9)])
    texts = [annotation.text for annotation in figure.layout.annotations]
    assert texts == ["stage 0 · 16 × 32 × 32", "stage 1 · 32 × 16 × 16", "stage 2 · 64 × 8 × 8"]


@pytest.mark.parametrize("name", ["delta", "proportion"])
def test_a_surface_has_m1_across_and_m2_upwards(name):
    shown = view(samples=30)
    surface = getattr(shown, name)
    top = [] if name == "delta" else [surfaces.proportion_top([shown])]
    figure = getattr(surfaces, f"{name}_figure")(shown, surfaces.surface_extent([shown]), *top)
    contour = figure.data[0]
    assert list(contour.x) == list(shown.m1)
    assert list(contour.y) == list(shown.m2)
    np.testing.assert_array_equal(np.array(contour.z, dtype=float), surface.T)
    assert surface.shape[0] != surface.shape[1]  # or the transpose would not be seen


def test_the_extent_loses_nothing_that_can_be_seen():
    shown = view(samples=60)
    end_1, end_2 = surfaces.surface_extent([shown])
    beyond = (shown.m1[:, None] > end_1) | (shown.m2[None, :] > end_2)
    assert beyond.any()
    assert shown.delta[beyond].max() < 0.02


def test_the_curves_are_the_inputs_values():
    shown = view(samples=30)
    figure = plots.extremes_figure(shown)
    curves = [t for t in figure.data if t.legendgroup]
    expected = [curve.nsi for curve in (*shown.calmest, *shown.stiffest)]
    for drawn, values in zip(curves, expected, strict=True):
        assert known(drawn.y) == list(values)
    assert [t.showlegend for t in curves].count(True) == 2
