"""Reports of several networks on the same images in, a `Comparison` out."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from stiffnet.errors import DataError
from stiffnet.results.comparison import Comparison, Difference, Network, Pair
from stiffnet.results.stiffness import StiffnessReport
from stiffnet.stiffness.given import Floats
from stiffnet.stiffness.paired import Paired, mcnemar, paired
from stiffnet.stiffness.relate import holm
from stiffnet.words import listed

Labels = npt.NDArray[np.int64]


def compare(
    reports: Mapping[str, StiffnessReport], *, facts: Mapping[str, str] | None = None
) -> Comparison:
    """Compare networks that were measured on the same images, each with the first.

    Steps correspond where both networks have the same number of steps in every stage: by name if
    all names are equal, else by position. Where they do not, TNS, accuracy, loss and the shares of
    stages are compared alone. Corrections by Holm's method are over all steps of all pairs, over
    all stages of all pairs, and over the pairs for what is one number a network.

    Args:
        reports: What `stiffnet.measure` found, by the networks' names, the first one first. All
            are of the same images in the same order, with the values of every image kept. Reports
            do not hold images: where they have labels these must correspond, and the rest is taken
            on trust.
        facts: What the comparison should say about where its numbers come from.

    Raises:
        DataError: If there are fewer than two reports, or their images cannot be paired.

    Example:
        >>> import stiffnet, torch
        >>> images = torch.rand(4, 3, 16, 16)
        >>> found = compare(
        ...     {
        ...         f"seed {seed}": stiffnet.measure(
        ...             stiffnet.create_model("resnet20_cifar", seed=seed), [images]
        ...         )
        ...         for seed in (0, 1)
        ...     }
        ... )
        >>> len(found.pairs[0].steps), found.pairs[0].matched
        (9, 'name')
    """
    if len(reports) < 2:
        raise DataError("A comparison needs two networks or more. Give another one.")
    (first, *others) = reports
    for name in reports:
        _check_pairing(name, reports[name], reports[first])
    networks = tuple(_network(name, report) for name, report in reports.items())
    pairs = [_pair(first, reports[first], name, reports[name]) for name in others]
    return Comparison(
        images=reports[first].samples,
        networks=networks,
        pairs=tuple(_corrected(pairs)),
        facts=dict(facts or {}),
    )


def _check_pairing(name: str, report: StiffnessReport, first: StiffnessReport) -> None:
    kept = report.kept
    if len(kept) != report.samples:
        raise DataError(
            f"{name} has kept the values of {len(kept):,} of its {report.samples:,} images, and "
            f"all are needed to pair them. Measure with `keep={report.samples}`."
        )
    if not np.array_equal(kept.number, first.kept.number):
        raise DataError(
            f"{name} was measured on {report.samples:,} images and the first network on "
            f"{first.samples:,}. Measure all of them on the same images."
        )
    if not _labels_correspond(kept.label, first.kept.label):
        raise DataError(
            f"{name} was measured on other images than the first network, or on the same in "
            "another order: their labels do not correspond. Measure all of them on the same data, "
            "with a loader that does not shuffle."
        )


def _labels_correspond(one: Labels | None, other: Labels | None) -> bool:
    """Whether images with the same label in one report have the same in the other, or the reverse.

    Networks may number the classes in their own ways, and one may join classes of the other.
    """
    if one is None or other is None:
        return True
    pairs = np.unique(np.stack([one, other]), axis=1).shape[1]
    return bool(pairs == max(len(np.unique(one)), len(np.unique(other))))


def _network(name: str, report: StiffnessReport) -> Network:
    kept = report.kept
    return Network(
        name=name,
        steps=tuple(step.name for step in report.steps),
        stages=tuple(step.stage for step in report.steps),
        counted=tuple(step.counted for step in report.steps),
        nsi=tuple(report.summary.nsi_mean.tolist()),
        shares=tuple(_shares(report).mean(axis=0).tolist()),
        tns=report.tns,
        tns_se=report.tns_se,
        accuracy=report.accuracy,
        loss=None if kept.loss is None else float(kept.loss.mean()),
        facts=dict(report.facts),
        notes=report.notes,
    )


def _shares(report: StiffnessReport) -> Floats:
    """Each stage's part of the NSI summed over all steps, (images, stages)."""
    stages = [step.stage for step in report.steps]
    nsi = report.nsi
    sums = np.stack(
        [nsi[:, [s == stage for s in stages]].sum(axis=1) for stage in dict.fromkeys(stages)],
        axis=1,
    )
    total = sums.sum(axis=1, keepdims=True)
    shares: Floats = np.divide(sums, total, out=np.zeros_like(sums), where=total > 0)
    return shares


def _matched(one: StiffnessReport, other: StiffnessReport) -> tuple[str, str]:
    """Return how steps correspond, and why they do not."""
    counts = [
        list(Counter(step.stage for step in report.steps).values()) for report in (one, other)
    ]
    if counts[0] != counts[1]:
        one_has, other_has = (listed([str(number) for number in each]) for each in counts)
        return "", f"one has {one_has} steps in its stages, the other {other_has}"
    same = [step.name for step in one.steps] == [step.name for step in other.steps]
    return ("name" if same else "position"), ""


def _pair(first: str, one: StiffnessReport, second: str, other: StiffnessReport) -> Pair:
    matched, reason = _matched(one, other)
    a, b = one.kept, other.kept
    tns = accuracy = loss = None
    if one.counted and other.counted:
        tns = _difference(paired(one.sample_tns, other.sample_tns))
    if a.correct is not None and b.correct is not None:
        accuracy = _difference(mcnemar(a.correct, b.correct))
    if a.loss is not None and b.loss is not None:
        loss = _difference(paired(a.loss, b.loss))
    steps, stages = [], []
    if matched:
        names = [(x.name, y.name) for x, y in zip(one.steps, other.steps, strict=True)]
        steps = _differences(a.nsi, b.nsi, names)
    shares = _shares(one), _shares(other)
    if shares[0].shape == shares[1].shape:
        stages = _differences(*shares, [(f"stage {i}",) * 2 for i in range(shares[0].shape[1])])
    return Pair(first, second, matched, reason, tns, accuracy, loss, tuple(steps), tuple(stages))


def _differences(one: Floats, other: Floats, names: list[tuple[str, str]]) -> list[Difference]:
    """Compare two tables of values column by column."""
    columns = zip(one.T, other.T, names, strict=True)
    return [_difference(paired(x, y), *both) for x, y, both in columns]


def _difference(found: Paired, name: str = "", other: str = "") -> Difference:
    return Difference(name, other, **found._asdict(), holm=None)


def _corrected(pairs: list[Pair]) -> list[Pair]:
    """Return the pairs with p-values corrected within each kind of quantity."""
    for kind in ("tns", "accuracy", "loss"):
        found = [getattr(pair, kind) for pair in pairs]
        values = holm([d and d.p for d in found])
        changed = [d and replace(d, holm=p) for d, p in zip(found, values, strict=True)]
        pairs = [replace(pair, **{kind: d}) for pair, d in zip(pairs, changed, strict=True)]
    for kind in ("steps", "stages"):
        rest = iter(holm([d.p for pair in pairs for d in getattr(pair, kind)]))
        for i, pair in enumerate(pairs):
            parts: Any = tuple(replace(d, holm=next(rest)) for d in getattr(pair, kind))
            pairs[i] = replace(pair, **{kind: parts})
    return pairs
