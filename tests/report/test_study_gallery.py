"""Pictures on a study's page: JPEG files and nothing else, under the names of their rows."""

import base64
import io
from dataclasses import replace

import pytest
from PIL import Image

from report import study_cases as cases
from stiffnet.report.page import page
from stiffnet.report.study_gallery import gallery

ABOUT = {
    "kind": "gallery", "x": "given", "y": "made", "heading": "Restyled", "x_title": "photograph",
    "y_title": "like",
}  # fmt: skip
ROWS = ("in", "bn", '"><script>window.pwned=1</script>')


def jpeg(level):
    stream = io.BytesIO()
    Image.new("RGB", (8, 6), (level, 0, 0)).save(stream, "JPEG")
    return base64.b64encode(stream.getvalue()).decode()


def shown(**values):
    report = cases.study(rows=ROWS, seeds=2)
    lines = []
    for number, line in enumerate(report.lines):
        own = {"given": [jpeg(1), jpeg(2)], "like": jpeg(3), "made": [jpeg(number), jpeg(99)]}
        lines.append(replace(line, values={**line.values, **own, **values}))
    return replace(report, lines=tuple(lines), picture=ABOUT)


def test_each_photograph_has_a_row_with_the_style_and_the_first_seed_of_each_network():
    _, pictures = gallery(shown(), "Restyled")
    assert pictures.columns[:4] == ["photograph", "style", "in", "bn"]
    assert pictures.rows == [
        (jpeg(1), jpeg(3), jpeg(0), jpeg(2), jpeg(4)),
        (jpeg(2), jpeg(3), *[jpeg(99)] * 3),
    ]


def test_the_page_holds_the_pictures_and_asks_nobody_for_them(short_plotly):
    text = page([shown()])
    assert f'src="data:image/jpeg;base64,{jpeg(2)}"' in text
    assert 'alt="bn, picture 1"' in text
    assert "<script>window.pwned" not in text


@pytest.mark.parametrize(
    "bad",
    [
        '" onerror="alert(1)', "https://example.org/a.jpg", "", 7, None,
        base64.b64encode(b"<svg onload=alert(1)>").decode(), "A" * 300_000,
    ],
)  # fmt: skip
def test_what_is_no_jpeg_is_not_shown(bad, short_plotly):
    report = shown(made=[bad, jpeg(99)])
    _, pictures = gallery(report, "Restyled")
    assert [row[2] for row in pictures.rows] == ["", jpeg(99)]
    text = page([report])
    assert "onerror" not in text
    assert "example.org" not in text


def test_rows_that_failed_and_values_that_are_no_lists_leave_no_hole():
    assert len(gallery(shown(made="x", given="y"), "Restyled")[1].rows) == 0
    report = shown()
    lost = tuple(replace(line, values={}) for line in report.lines)
    assert len(gallery(replace(report, lines=lost), "Restyled")) == 1
