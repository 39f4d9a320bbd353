"""What average Grad-CAM says, in sentences: computed from a report, for page and terminal."""

import math

from stiffnet.report.text import clean, count, images, percent, plus_minus, strong
from stiffnet.results.gradcam import UNIFORM, Estimate, GradcamReport

_NAMES = {"images": "images", "shifted": "shifted images", "noise": "noise images"}


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
