"""What a page and a terminal show of average Grad-CAM."""

import pandas as pd
from rich.console import Group, RenderableType

from stiffnet.report import blocks, cells
from stiffnet.report.gradcam_findings import findings, headline, in_percent, in_sides
from stiffnet.report.gradcam_plots import colour_range, map_figure
from stiffnet.report.terminal import sheet_lines, told
from stiffnet.report.text import clean, cleaned, count, images, percent, rows
from stiffnet.results.gradcam import UNIFORM, Estimate, GradcamReport, MapsOf

CLASSES = 24  # that are drawn: those with the most images
_TITLES = {"images": "Images", "shifted": "Shifted", "noise": "Noise"}


def part(report: GradcamReport, title: str, end: str) -> blocks.Part:
    """Return what average Grad-CAM puts on a page."""
    lede, tiles = blocks.Words(headline(report), "lede"), blocks.Tiles(_tiles(report))
    return blocks.Part(
        kind="Grad-CAM",
        articles=[(title, [lede, tiles, blocks.Findings(findings(report))])],
        sections=_sections(report, end),
        tables=[(title, _tables(report))],
        reading=["gradcam"],
        facts=[(title, blocks.Facts(cleaned(report.facts)))],
    )


def terminal(report: GradcamReport) -> RenderableType:
    """Return what a terminal shows of a report."""
    title = clean(report.title, longest=120)
    return Group(
        told(title, headline(report), findings(report)), sheet_lines(_sheet(report), light=True)
    )


def _tiles(report: GradcamReport) -> list[tuple[str, str, str]]:
    """Return the numbers under the headline: name, value, what it is made of."""
    zero = report.images.zero
    maps = "every one has a map" if not zero else f"{count(zero)} have a map that is zero"
    return [
        ("In the central quarter", in_percent(report.images.mass("centre")),
         f"of the mean map; {percent(UNIFORM)} if even"),
        ("The same for noise", in_percent(report.noise.mass("centre")),
         "Gaussian, with the images' mean and deviation"),
        ("Follows the shift", in_percent(report.followed), "100 %: as the images do; 0 %: stays"),
        ("Images", count(report.samples), maps),
    ]  # fmt: skip


def _sections(report: GradcamReport, end: str) -> list[blocks.Section]:
    text = (
        "Each map is scaled to a largest value of 1 before the mean. Colours are the mean map over "
        "its own average, so that 1 is an even map; the dotted square is the central quarter, the "
        "cross is the centre of mass. Axes are shares of the image's sides. In the second picture "
        "the square has moved as the images did."
    )
    ends = colour_range([view.mean for view in report.views])
    drawn = [_view(report, view, ends, end) for view in report.views]
    found = [
        blocks.Section(
            f"means{end}", "Where the evidence is, on average", "Mean maps", text,
            [blocks.Box("maps", drawn)],
        )
    ]  # fmt: skip
    if len(report.class_label):
        shown = _most(report)
        many = f"{count(len(shown))} of {count(len(report.class_label))} classes, those with the "
        text = (
            "The mean maps of the images, by their labels, in one scale of colours, and how much "
            "of each lies in the central quarter."
        )
        if len(shown) < len(report.class_label):
            text += f" Drawn are {many}most images; the tables have all of them."
        ends = colour_range([report.class_mean[i] for i in shown])
        plots = [_class(report, i, ends, end) for i in shown]
        box = blocks.Box("maps many", plots)
        heading = "By class"
        found.append(blocks.Section(f"classes{end}", heading, "Classes", text, [box]))
    return found


def _view(report: GradcamReport, view: MapsOf, ends: tuple[float, float], end: str) -> blocks.Plot:
    middle = view.mass("x").value, view.mass("y").value
    square = 0.25 + (report.shift if view.kind == "shifted" else 0.0)
    figure = map_figure(view.mean, middle, ends, square=square)
    note = f"Central quarter: {in_percent(view.mass('centre'))}"
    if view.kind == "shifted":
        note += f"; the square that moved along: {in_percent(view.mass('moved'))}"
    place, label = f"map-{view.kind}{end}", "Mean Grad-CAM"
    return blocks.Plot(place, figure, label, _TITLES[view.kind], f"{note}.")


def _class(report: GradcamReport, number: int, ends: tuple[float, float], end: str) -> blocks.Plot:
    label = int(report.class_label[number])
    own = report.label == label
    share = report.images.mass("centre", own)
    middle = report.images.mass("x", own).value, report.images.mass("y", own).value
    figure = map_figure(report.class_mean[number], middle, ends, small=True)
    name = clean(report.class_name(label), longest=60)
    note = f"{in_percent(share)}, {images(int(own.sum()))}"
    return blocks.Plot(f"class-{number}{end}", figure, "Mean Grad-CAM", name, note)


def _most(report: GradcamReport) -> list[int]:
    """Return which classes are drawn, in the order of their numbers."""
    sizes = [int((report.label == label).sum()) for label in report.class_label]
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    return sorted(order[:CLASSES])


def _tables(report: GradcamReport) -> list[blocks.Table]:
    frame = report.to_frame()
    views, classes = frame[frame["kind"] != "class"], frame[frame["kind"] == "class"]
    views = views.assign(of=[_TITLES[kind] for kind in views["kind"]])
    made = [_table("views", "Images and controls", views)]
    return [*made, _table("labels", "Classes", classes)] if len(classes) else made


def _table(name: str, caption: str, frame: pd.DataFrame) -> blocks.Table:
    half = "standard error over images"
    moved = "share of the central square after it moved as the shifted images did"
    zero = "maps that are zero everywhere, left out of the mean"
    fields = [
        cells.words("Of", "of"),
        cells.numbers("Centre", "centre", "share of the central quarter", places=4, longest=1.0),
        cells.numbers("SE", "centre_se", half, places=4),
        cells.numbers("Moved square", "moved", moved, places=4),
        cells.numbers("SE", "moved_se", half, places=4),
        cells.numbers("x", "x", "centre of mass, right of the middle, in widths", places=4),
        cells.numbers("SE", "x_se", half, places=4),
        cells.numbers("y", "y", "centre of mass, below the middle, in heights", places=4),
        cells.numbers("SE", "y_se", half, places=4),
        cells.numbers("Images", "images", write=cells.whole),
        cells.numbers("Zero maps", "zero", zero, write=cells.whole),
    ]
    return cells.table(name, caption, rows(frame), fields, opened=True)


def _sheet(report: GradcamReport) -> blocks.Table:
    """Return what fits a terminal: a row for each kind of images and each class."""
    lines = []
    for row in rows(report.to_frame()):
        centre = in_percent(Estimate(row["centre"], row["centre_se"], 2)).removesuffix(" %")
        middle = [in_sides(Estimate(row[key], row[f"{key}_se"], 2)) for key in ("x", "y")]
        name = _TITLES.get(row["kind"], "") or clean(row["of"], longest=20)
        lines.append([name, centre, *middle, count(row["images"]), count(row["zero"])])
    heads = ("", "centre, %", "x", "y", "images", "zero")
    return cells.sheet("Images and controls", heads, lines, name="views")
