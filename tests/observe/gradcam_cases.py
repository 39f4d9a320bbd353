"""Reports on average Grad-CAM with numbers from a fixed seed, and none that was measured."""

from dataclasses import replace

import numpy as np

from stiffnet.observe.map_sums import MapSums
from stiffnet.results.gradcam import GradcamReport

NAMES = ("airplane", "bird", "cat")


def maps(many, size=8, *, middle=0.5, seed=0):
    """Return bumps around a column, also around the edge, with noise that differs by map."""
    random = np.random.default_rng(seed)
    places = (np.arange(size) + 0.5) / size
    away = np.abs(places - middle)
    away = np.minimum(away, 1 - away)
    bump = np.exp(-((places[:, None] - 0.5) ** 2 + away**2) / 0.1)
    return bump * random.uniform(0.5, 1.0, (many, size, size))


def report(many=30, *, classes=NAMES, size=8, middles=(0.5, 0.75, 0.5), zero=0, seed=0):
    sums = {}
    label = np.arange(many) % max(len(classes), 1)
    for i, (kind, middle) in enumerate(zip(("images", "shifted", "noise"), middles, strict=True)):
        drawn = maps(many, size, middle=middle, seed=seed + i)
        drawn[:zero] = 0.0
        sums[kind] = MapSums(0.25)
        sums[kind].add(drawn, label, label if i == 0 and classes else None)
    images = sums["images"]
    return GradcamReport(
        layer="layer3",
        target="predicted",
        shift=0.25,
        views=tuple(each.maps(kind) for kind, each in sums.items()),
        label=images.label(),
        classes=tuple(classes),
        class_label=np.array(sorted(images.by_label), dtype=np.int64),
        class_mean=images.class_mean(size, size),
        facts={"model": "small network", "data": "made up"},
    )


def poisoned(text):
    """Return a report whose every string is the given one."""
    made = report(6, classes=tuple(f"{i} {text}" for i in range(3)), size=2)
    return replace(made, layer=text, notes=(text,), facts={"model": text, text: text})
