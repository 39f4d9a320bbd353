"""Whether a page can be read: contrast after WCAG 2, from the colours as they are."""

import re
from importlib import resources

import pytest

from stiffnet.report.theme import DARK, LIGHT, SERIES, TO_DARK

CSS = resources.files("stiffnet.report").joinpath("templates/page.css").read_text()
LIGHT_CSS, DARK_CSS = (
    dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
    for block in re.findall(r":root \{(.*?)\}", CSS, flags=re.DOTALL)[:2]
)


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("css", [LIGHT_CSS, DARK_CSS], ids=["light", "dark"])
@pytest.mark.parametrize("text", ["ink", "muted", "accent"])
@pytest.mark.parametrize("ground", ["page", "paper", "soft"])
def test_text_has_contrast(css, text, ground):
    assert contrast(css[text], css[ground]) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_lines_and_labels_have_contrast(theme):
    for i in range(SERIES):
        assert contrast(theme[f"series{i}"], theme["paper"]) >= 3
        assert contrast(theme[f"series{i}"], theme["band"]) >= 3
    for i in range(5):  # contour labels are written on every part of the scale
        assert contrast(theme["ink"], theme[f"scale{i}"]) >= 4.5
    assert contrast(theme["muted"], theme["paper"]) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_the_scale_is_monotone_in_lightness(theme):
    lightness = [luminance(theme[f"scale{i}"]) for i in range(5)]
    assert lightness in (sorted(lightness), sorted(lightness, reverse=True))


def test_the_page_and_its_charts_have_the_same_colours():
    for css, theme in ((LIGHT_CSS, LIGHT), (DARK_CSS, DARK)):
        assert {css[f"series{i}"] for i in range(SERIES)} == {
            theme[f"series{i}"] for i in range(SERIES)
        }
        assert [css[name] for name in ("ink", "muted", "paper")] == [
            theme[name] for name in ("ink", "muted", "paper")
        ]


def test_no_two_roles_share_a_light_colour():
    assert len(TO_DARK) == len(LIGHT) == len(DARK)
