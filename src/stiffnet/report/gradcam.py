"""What a page and a terminal show of average Grad-CAM."""

import math
from typing import Any

from rich.console import Group, RenderableType

from stiffnet.report import blocks, cells
from stiffnet.report.gradcam_plots import colour_range, map_figure
from stiffnet.report.terminal import sheet_lines, told
from stiffnet.report.text import clean, cleaned, count, images, percent, plus_minus, rows, strong
from stiffnet.results.gradcam import UNIFORM, Estimate, GradcamReport, MapsOf

CLASSES = 24  # that are drawn: those with the most images
_NAMES = {"images": "images", "shifted": "shifted images", "noise": "noise images"}
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


def in_percent(found: Estimate) -> str:
    """Write a share of one as a percentage with its standard error.

    >>> in_percent(Estimate(0.3124, 0.0051, 500)), in_percent(Estimate(0.3, math.nan, 1))
    ('31.2 ± 0.5 %', '30.0 %')
    """
    return f"{plus_minus(100 * found.value, 100 * found.error, 1)} %"


def in_sides(found: Estimate) -> str:
    """Write a distance in sides of the image with its standard error."""
    return plus_minus(found.value, found.error, 3)


def headline(report: GradcamReport) -> str:
    """Say whether evidence lies in the centre, in one sentence."""
    found = report.images.mass("centre")
    if not math.isfinite(found.value):
        many = images(report.samples)
        return (
            f"{strong('No map has any evidence in it')}: for {many} nothing in {_layer(report)} "
            "speaks for the class, so there is no mean map."
        )
    verdict = strong(centre_verdict(found))
    target = "label" if report.target == "label" else "predicted class"
    return (
        f"The evidence of the network is {verdict}: {strong(in_percent(found))} of its mean "
        f"Grad-CAM lies in the central quarter of the image, where {percent(UNIFORM)} would lie if "
        f"it were the same everywhere ({images(report.samples)}, layer {_layer(report)}, "
        f"for the {target})."
    )


def centre_verdict(found: Estimate) -> str:
    """Judge a share of the central quarter by its 95 % interval."""
    low, high = found.interval
    if _toward(found):
        return "biased toward the centre"
    if high < UNIFORM:
        return "biased away from the centre"
    if math.isnan(low):
        return "of unknown bias, because an interval needs two images or more"
    return "neither toward nor away from the centre, as far as these images can tell"


def findings(report: GradcamReport) -> list[str]:
    """Say what the controls tell, where the middle lies, and what had no map."""
    found = [*_zero(report)]
    if math.isfinite(report.images.mass("centre").value):
        x, y = report.images.mass("x"), report.images.mass("y")
        found.append(
            f"The centre of mass of the mean map is {in_sides(x)} of the width to the right of the "
            f"middle and {in_sides(y)} of the height below it."
        )
        found += [*_noise(report), *_shift(report), *_extremes(report)]
    return [*found, *map(clean, report.notes)]


def shift_verdict(found: Estimate) -> str:
    """Judge how far the mean map followed the shift, by its 95 % interval."""
    low, high = found.interval
    if math.isnan(low):
        return "cannot be said to follow the data or not"
    stays, follows = low <= 0 <= high, low <= 1 <= high
    if stays and follows:
        return "may follow the data or stay where it was: these images cannot tell"
    if follows:
        return "follows the data"
    if stays:
        return "stays where it was"
    if low > 0 and high < 1:
        return "follows the data part of the way"
    return "moves further than the data" if low > 1 else "moves against the data"


def _zero(report: GradcamReport) -> list[str]:
    return [
        f"{strong(f'{count(view.zero)} of {images(len(view.total), _NAMES[view.kind])}')} have a "
        "map that is zero everywhere, because nothing in the layer speaks for the class; they have "
        "no part in the mean."
        for view in report.views
        if view.zero
    ]


def _noise(report: GradcamReport) -> list[str]:
    noise, more = report.noise.mass("centre"), report.above_noise
    if not math.isfinite(noise.value):
        return []
    low, high = more.interval
    if low > 0:
        said = "less than for the images: what is in them adds to it"
    elif high < 0:
        said = "more than for the images: what is in them takes from it"
    else:
        said = "which cannot be told apart from the share for the images"
    own = " The network has a bias toward the centre without any data." if _toward(noise) else ""
    return [f"For noise, {strong(in_percent(noise))} lie in the central quarter, {said}.{own}"]


def _toward(found: Estimate) -> bool:
    return found.interval[0] > UNIFORM


def _shift(report: GradcamReport) -> list[str]:
    moved = report.shifted.mass("moved")
    if not math.isfinite(moved.value):
        return []
    followed, by = report.followed, percent(report.shift)
    centre, before = report.images.mass("centre"), report.images.mass("moved")
    if not math.isfinite(followed.value):
        return [
            "Whether the mean map follows shifted images cannot be said: the central square has "
            f"{in_percent(centre)} of it and the square to its right {in_percent(before)}, which "
            "are not distinct."
        ]
    return [
        f"With the images shifted to the right by {by} of their width, around the edge, the mean "
        f"map {strong(shift_verdict(followed))}: the square that moves along has "
        f"{in_percent(moved)} of it. It had {in_percent(before)} before, and would have "
        f"{in_percent(centre)} if every map moved as its image does ({in_percent(followed)} of the "
        "way).",
        f"The centre of mass moves by {in_sides(report.travel)} of the width then; "
        f"{in_sides(report.full_travel)} if every map moved along.",
    ]


def _extremes(report: GradcamReport) -> list[str]:
    frame = report.to_frame()
    classes = frame[(frame["kind"] == "class") & frame["centre"].notna()]
    if len(classes) < 2:
        return []
    ranked = classes.sort_values("centre", kind="stable")
    least, most = ranked.iloc[0], ranked.iloc[-1]
    names = [clean(each["of"], longest=60) for each in (most, least)]
    shares = [in_percent(Estimate(e["centre"], e["centre_se"], e["images"])) for e in (most, least)]
    return [
        f"By class, the centre has most for {strong(names[0])} ({shares[0]}) and least for "
        f"{strong(names[1])} ({shares[1]})."
    ]


def _layer(report: GradcamReport) -> str:
    return clean(report.layer, longest=60)


def _tiles(report: GradcamReport) -> list[tuple[str, str, str]]:
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
    heading, box = "Where the evidence is, on average", blocks.Box("maps", drawn)
    found = [blocks.Section(f"means{end}", heading, "Mean maps", text, [box])]
    if len(report.class_label):
        shown, every = _most(report), len(report.class_label)
        text = (
            "The mean maps of the images, by their labels, in one scale of colours, and how much "
            "of each lies in the central quarter."
        )
        if len(shown) < every:
            text += (
                f" Drawn are {count(len(shown))} of {count(every)} classes, those with the most "
                "images; the tables have all of them."
            )
        ends = colour_range([report.class_mean[i] for i in shown])
        box = blocks.Box("maps many", [_class(report, i, ends, end) for i in shown])
        found.append(blocks.Section(f"classes{end}", "By class", "Classes", text, [box]))
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
    records = rows(report.to_frame())
    views = [row | {"of": _TITLES[row["kind"]]} for row in records if row["kind"] != "class"]
    classes = [row for row in records if row["kind"] == "class"]
    made = [_table("views", "Images and controls", views)]
    return [*made, _table("labels", "Classes", classes)] if classes else made


def _table(name: str, caption: str, records: list[dict[str, Any]]) -> blocks.Table:
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
    return cells.table(name, caption, records, fields, opened=True)


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
