"""Where the mass of maps lies: closed forms, and a fine grid."""

import numpy as np
import pytest

from reference.gradcam import integral
from stiffnet.observe.map_sums import covered, masses, places


def is_central(x, y):
    return (abs(x - 0.5) < 0.25) & (abs(y - 0.5) < 0.25)


@pytest.mark.parametrize("size", [(2, 2), (4, 4), (5, 7), (7, 7), (8, 8), (1, 3)])
@pytest.mark.parametrize("shift", [0.25, 0.2])
def test_an_even_map_has_a_quarter_in_the_centre_and_does_not_move(size, shift):
    found = masses(np.full((1, *size), 0.5), shift)
    assert found["total"] == pytest.approx(0.5)
    assert found["centre"] == pytest.approx(0.125)
    assert found["moved"] == pytest.approx(0.125)
    for name in ("x", "y", "carried"):
        assert found[name] == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("size", [(2, 2), (4, 4), (5, 4), (8, 8), (5, 10)])
@pytest.mark.parametrize("shift", [0.25, 0.2])
def test_integrals_agree_with_a_fine_grid(size, shift):
    cam = np.random.default_rng(0).random(size)
    found = masses(cam[None], shift)
    wanted = {
        "total": lambda x, y: np.ones_like(x),
        "centre": is_central,
        "moved": lambda x, y: is_central((x - shift) % 1, y),
        "x": lambda x, y: x - 0.5,
        "y": lambda x, y: y - 0.5,
        "carried": lambda x, y: (x + shift) % 1 - 0.5,
    }
    assert set(found) == set(wanted)
    for name, weight in wanted.items():
        assert found[name] == pytest.approx(integral(cam, weight), abs=1e-12), name


def test_a_map_that_rolls_by_whole_cells_carries_what_was_said():
    cam = np.random.default_rng(1).random((3, 8, 8))
    before, after = masses(cam, 0.25), masses(np.roll(cam, 2, axis=2), 0.25)
    np.testing.assert_allclose(after["x"], before["carried"], atol=1e-15)
    np.testing.assert_allclose(after["moved"], before["centre"], atol=1e-15)
    np.testing.assert_allclose(after["y"], before["y"], atol=1e-15)


def test_a_single_cell_has_its_mass_where_it_is():
    cam = np.zeros((1, 4, 4))
    cam[0, 3, 0] = 1.0  # below, left
    found = masses(cam, 0.25)
    assert found["x"] / found["total"] == -0.375
    assert found["y"] / found["total"] == 0.375
    assert found["centre"] == 0


def test_cells_across_an_edge_count_by_the_part_inside():
    assert covered(7, 0.25, 0.75).sum() == pytest.approx(3.5)
    assert covered(4, 0.75, 1.25).tolist() == [1.0, 0.0, 0.0, 1.0]
    assert places(2).tolist() == [-0.25, 0.25]
