"""Growth as a record: saved and loaded, drawn on a page, told in a terminal."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console

import stiffnet
from observe.gated_networks import blocks, images
from report.parsed import Parsed
from stiffnet.report.page import page
from stiffnet.results.growth import Growth


@pytest.fixture(scope="module")
def found():
    return stiffnet.growth(blocks(3), images(2), draws=2, iterations=5)


def test_it_is_the_same_when_it_is_loaded(found, tmp_path):
    loaded = Growth.load(found.save(tmp_path / "growth.json"))
    assert loaded.to_frame().equals(found.to_frame())
    assert loaded.facts == found.facts
    assert loaded.title == "Sequential"


def test_one_without_facts_is_read_too(found):
    row = {key: value for key, value in found.to_row().items() if key != "facts"}
    assert Growth.from_row(row).to_frame().equals(found.to_frame())


def test_the_page_draws_what_was_measured_against_the_bound(found, short_plotly):
    figure = Parsed(page([found])).data["figures"]["growth"]
    drawn = {trace["name"]: trace["y"] for trace in figure["data"]}
    np.testing.assert_allclose(drawn["measured"], np.exp(found.log_growth), rtol=1e-4)  # 5 digits
    np.testing.assert_allclose(drawn["Theorem 6.1"], np.exp(found.log_bound), rtol=1e-4)


def said(growth):
    console = Console(width=100)
    with console.capture() as heard:
        console.print(growth)
    return " ".join(heard.get().split())


def test_a_terminal_is_told_how_near_the_bound_is(found):
    text = said(found)
    assert f"grows {np.exp(found.log_growth[-1]):.3g}"[:9] in text
    assert "Theorem 6.1 bounds it by" in text
    assert "No image and direction came nearer to the bound than" in text
    assert "The bound was exceeded, by 50 %" in said(
        replace(found, nearest=found.nearest * 0 + 1.5)
    )


def test_its_repr_is_one_line(found):
    assert repr(found).startswith("Growth('Sequential', images=2, steps=3, growth=")
    assert "array" not in repr(found)


def test_a_shortcut_takes_few_products():
    """The norm of a mask is known after two of each, whatever number is allowed."""
    from stiffnet.stiffness.jacobian_norm import largest_singular_value

    mask = (torch.arange(40) % 3 > 0).double()
    calls = []

    def product(v):
        calls.append(1)
        return mask * v

    start = torch.randn(2, 40, generator=torch.Generator().manual_seed(0)).double()
    found = largest_singular_value(product, product, start, iterations=30)
    np.testing.assert_allclose(found, [1, 1], rtol=1e-12)
    assert len(calls) <= 6
