"""A demo of tiny networks that nobody trained: measured numbers, made-up logs and times."""

from dataclasses import replace
from functools import cache

import numpy as np
import torch

import stiffnet
from observe import spectrum_cases
from report import study_cases
from results.test_fold import REPORT, poisoned as poisoned_fold
from stiffnet.observe.compare import compare
from stiffnet.ode import euler
from stiffnet.results.demo import DemoNetwork, DemoReport, TimedForm

NETWORKS = {"plain": "none", "SE": "se", "ASR(SE)": "asr:se"}
CLASSES = ("cat", "dog")


@cache
def _measured(attention, seed):
    images = torch.randn(12, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(12) % 2
    model = stiffnet.create_model(
        "resnet20_cifar", num_classes=2, attention=None if attention == "none" else attention,
        seed=seed,
    ).eval()  # fmt: skip
    facts = {"model": "resnet20_cifar", "attention": attention}
    return stiffnet.measure(model, [(images, labels)], classes=CLASSES, facts=facts)


def network(name, attention):
    before, after = (_measured(attention, seed) for seed in (0, 1))
    return DemoNetwork(name, attention, before, after, study_cases.log(seed=3, tns=False))


def form(name, centre=1.0, *, spread=0.01, passes=24, **changes):
    """A form whose ratios lie evenly around a number."""
    ratios = tuple(centre + spread * np.linspace(-1, 1, passes)) if passes else ()
    return replace(TimedForm(name, 0.9, 1000, 5000, 100.0, None, ratios), **changes)


def report(**changes):
    """Return a whole demo, and with other fields where they are given."""
    networks = tuple(network(*each) for each in NETWORKS.items())
    spectrum = spectrum_cases.report(("layer3.1",), images=2)
    made = DemoReport(
        networks=networks,
        comparison=compare({each.name: each.after for each in networks}),
        spectrum=spectrum,
        fold=REPORT,
        forms=(
            form("plain", passes=0),
            form("SE", 0.8),
            form("ASR(SE)", 0.85),
            form("folded", 1.0, scaled_error=2e-7),
            form("fused", 1.2, scaled_error=3e-7),
        ),
        batch=64,
        euler=euler.run(),
        facts={"model": "resnet20_cifar", "data": "digits", "seed": "0", "command": "x"},
    )
    return replace(made, **changes)


def poisoned(text):
    """Return a demo whose every string is the given one."""
    made = report()

    def measured(one):
        steps = tuple(replace(step, name=text) for step in one.steps)
        return replace(one, steps=steps, classes=(text, text), facts={text: text}, notes=(text,))

    networks = tuple(
        replace(
            each, name=text, attention=text, before=measured(each.before),
            after=measured(each.after), log=study_cases.poisoned_log(text),
        )
        for each in made.networks
    )  # fmt: skip
    named = made.comparison
    comparison = replace(
        named,
        networks=tuple(
            replace(each, name=text, steps=(text,) * len(each.steps)) for each in named.networks
        ),
        pairs=tuple(
            replace(
                pair, first=text, second=text,
                steps=tuple(replace(step, name=text, other=text) for step in pair.steps),
            )
            for pair in named.pairs
        ),
    )  # fmt: skip
    [found] = made.spectrum.spectra.values()
    return replace(
        made,
        networks=networks,
        comparison=comparison,
        spectrum=replace(
            made.spectrum,
            spectra={text: tuple(replace(each, step=text, cut=text) for each in found)},
            classes=(text, text),
        ),
        fold=poisoned_fold(text),
        forms=tuple(replace(each, name=text) for each in made.forms),
        euler=replace(made.euler, problem=text),
        facts={"model": text, "data": text, "seed": text, text: text},
    )
