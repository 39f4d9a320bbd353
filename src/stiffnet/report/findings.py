"""What a measurement says, in sentences: computed from a view, for the page and the terminal."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stiffnet.report.text import clean, count, finite, listed, number, percent, with_error
from stiffnet.report.view import StiffnessView

BARELY = 0.1  # a step whose rate is below a tenth of its state barely moves it
RELATED = 0.3  # a weaker rank correlation than this is not put into words
_NAMED = 3  # steps named in a sentence


@dataclass(frozen=True)
class Strong:
    """A piece of a sentence that carries its weight."""

    text: str


Sentence = tuple[str | Strong, ...]


def plain(sentence: Sentence) -> str:
    """Return a sentence without its emphasis."""
    return "".join(piece.text if isinstance(piece, Strong) else piece for piece in sentence)


def rows(frame: Any) -> list[dict[str, Any]]:
    """Return the rows of a frame, or none where there is no frame."""
    return [] if frame is None else frame.to_dict("records")


def stiffest_steps(view: StiffnessView, most: int = _NAMED) -> list[dict[str, Any]]:
    """Return the counted steps of the largest mean NSI (all steps where none is counted)."""
    steps = [row for row in rows(view.steps) if finite(row["nsi_mean"]) is not None]
    counted = [row for row in steps if row["counted"]] or steps
    return sorted(counted, key=lambda row: -row["nsi_mean"])[:most]


def stage_means(view: StiffnessView) -> dict[Any, float]:
    """Return the mean NSI of each stage's counted steps."""
    means = {}
    for stage in dict.fromkeys(view.steps["stage"]):
        own = [
            row["nsi_mean"] for row in rows(view.steps) if row["stage"] == stage and row["counted"]
        ]
        mean = finite(np.mean(own)) if own else None
        if mean:
            means[stage] = mean
    return means


def at_thresholds(view: StiffnessView, surface: np.ndarray, m1: float, m2: float) -> float | None:
    """Return a surface's value at two thresholds, or None where they are not on the grid."""
    across = np.flatnonzero(np.isclose(view.m1, m1, rtol=0, atol=1e-9))
    down = np.flatnonzero(np.isclose(view.m2, m2, rtol=0, atol=1e-9))
    return finite(surface[across[0], down[0]]) if across.size and down.size else None


def increment_differs(view: StiffnessView) -> bool:
    """Say whether the increment differs from NSI, as it does with attention and not without."""
    nsi = view.steps["nsi_mean"].to_numpy(dtype=float)
    increment = view.steps["increment_mean"].to_numpy(dtype=float)
    return not np.allclose(nsi, increment, rtol=1e-6, atol=1e-12, equal_nan=True) and bool(
        np.isfinite(increment).any()
    )


def all_counted(views: Sequence[StiffnessView]) -> bool:
    """Say whether every step of every view enters TNS."""
    return all(bool(view.steps["counted"].all()) for view in views)


def most_counted(view: StiffnessView) -> int:
    """Return how many counted steps the stage with the most of them has."""
    counted = view.steps.loc[view.steps["counted"].astype(bool), "stage"]
    return int(counted.value_counts().max()) if len(counted) else 0


def _all_zero(view: StiffnessView) -> bool:
    return bool((view.steps["nsi_mean"].to_numpy(dtype=float) == 0).all())


def headline(view: StiffnessView) -> Sentence:
    """Return TNS with its standard error, in plain words."""
    if finite(view.tns) is None or not view.steps["counted"].any():
        return (
            "No step of this network is counted, so it has no total neural stiffness (TNS). "
            "The indices of its steps are below.",
        )
    if _all_zero(view):
        return (
            "Every branch is ",
            Strong("zero"),
            ", so no step moves the state: many networks start like this, with a last norm of "
            "weight zero. Give trained weights to see something.",
        )
    if most_counted(view) == 1:
        return (
            "The total neural stiffness (TNS) is ",
            Strong("0"),
            " because no stage has more than one step that counts, and so none can stand out. "
            "The indices of the steps are below.",
        )
    error = ", with its standard error over " if finite(view.tns_se) is not None else ", over "
    return (
        "On an average image the total neural stiffness (TNS) is ",
        Strong(with_error(view.tns, view.tns_se)),
        f"{error}{images(view.samples)}. It would be 0 if, within each stage, every step moved the "
        "state by the same share.",
    )


def findings(view: StiffnessView) -> list[Sentence]:
    """Return a few sentences on where the stiffness sits, and what it goes with."""
    if _all_zero(view):
        return []
    candidates = (
        _stiffest(view), _barely(view), _peaks(view), _concentration(view), _related(view),
    )  # fmt: skip
    return [sentence for sentence in candidates if sentence]


def comparison(views: Sequence[StiffnessView]) -> list[Sentence]:
    """Return a sentence on how the total changes from the first view to each of the others."""
    sentences: list[Sentence] = []
    first = finite(views[0].tns) if views else None
    for other in views[1:]:
        now = finite(other.tns)
        if first is None or now is None:
            continue
        change = f": {number(now / first)} times as much" if first > 0 else ""
        sentences.append(
            (
                "Total neural stiffness (TNS) is ",
                Strong(with_error(now, other.tns_se)),
                f" {_quoted(other)}, against ",
                Strong(with_error(first, views[0].tns_se)),
                f" {_quoted(views[0])}{change}.",
            )
        )
    return sentences


def _quoted(view: StiffnessView) -> str:
    return f"in “{clean(view.title, longest=80)}”"


def images(many: int) -> str:
    """Write how many images, with the noun."""
    return "1 image" if many == 1 else f"{count(many)} images"


def _name(row: dict[str, Any]) -> str:
    return clean(row["step"], longest=60)


def _stiffest(view: StiffnessView) -> Sentence:
    top = stiffest_steps(view)
    if not top:
        return ()
    means = stage_means(view)
    mean = means.get(top[0]["stage"])
    relative = ""
    if mean and sum(view.steps["stage"] == top[0]["stage"]) > 1 and top[0]["counted"]:
        relative = f", {number(top[0]['nsi_mean'] / mean, 2)} times the mean of its stage"
    sentence: list[str | Strong] = [
        "The state moves most at ",
        Strong(_name(top[0])),
        f" (NSI {number(top[0]['nsi_mean'])}{relative})",
    ]
    for i, row in enumerate(top[1:]):
        sentence += [" and at " if i else ", then at ", Strong(_name(row))]
        sentence += [f" ({number(row['nsi_mean'])})"]
    return (*sentence, ".")


def _barely(view: StiffnessView) -> Sentence:
    steps = [row for row in rows(view.steps) if finite(row["nsi_mean"]) is not None]
    if len(steps) < 2:
        return ()
    calm = sorted((row for row in steps if row["nsi_mean"] < BARELY), key=lambda r: r["nsi_mean"])
    if not calm:
        least = min(steps, key=lambda row: row["nsi_mean"])
        return (
            f"Every step moves the state by more than {percent(BARELY)}; the calmest, ",
            Strong(_name(least)),
            f", has NSI {number(least['nsi_mean'])}.",
        )
    names = [_name(row) for row in calm[:_NAMED]]
    if len(calm) > _NAMED:
        names.append(f"{len(calm) - _NAMED} more")
    return (
        Strong(f"{len(calm)} of {len(view.steps)} steps barely move the state"),
        f" (NSI below {number(BARELY, 1)}): {listed(names)}.",
    )


def _peaks(view: StiffnessView) -> Sentence:
    share = at_thresholds(view, view.delta, 1.0, 0.0)
    if share is None or most_counted(view) < 3:  # of two steps none can be twice their mean
        return ()
    return (
        Strong(percent(share)),
        f" of {_kept(view)} have a step that is at least twice as stiff as the mean of its stage.",
    )


def _concentration(view: StiffnessView) -> Sentence:
    share = at_thresholds(view, view.proportion, 1.0, 0.0)
    counted = int(view.steps["counted"].sum())
    if share is None or most_counted(view) < 3:
        return ()
    if share == 0:
        return ("No image has such a step: the stiffness is spread evenly over each stage.",)
    if share * counted < 0.5:
        return (
            "Such steps are rare, ",
            Strong(percent(share)),
            " of all counted ones: within a stage the steps move the state by similar shares.",
        )
    word = "concentrated in a few steps" if share < 0.15 else "spread over many steps"
    return (
        "Such steps are ",
        Strong(percent(share)),
        f" of all counted ones, about {number(share * counted, 2)} of {counted} on an image: "
        f"the stiffness is {word}.",
    )


def _related(view: StiffnessView) -> Sentence:
    """The step whose index goes most closely with the loss, if any does."""
    names = set(view.steps["step"])
    known = [
        row
        for row in rows(view.relations)
        if row["target"] == "loss" and row["step"] in names and finite(row["spearman"]) is not None
    ]
    if not known:
        return ()
    closest = max(known, key=lambda row: abs(row["spearman"]))
    if abs(closest["spearman"]) < RELATED:
        return ()
    size = "smaller" if closest["spearman"] < 0 else "larger"
    return (
        "A larger NSI at ",
        Strong(_name(closest)),
        f" goes with a {size} loss: their rank correlation over images is ",
        Strong(f"{closest['spearman']:.2f}".replace("-", "−")),
        ".",
    )


def _kept(view: StiffnessView) -> str:
    return "the images" if view.kept == view.samples else f"the {count(view.kept)} kept images"
