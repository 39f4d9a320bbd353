"""Stripe reports with numbers from a fixed seed, and none that was measured."""

from dataclasses import replace

import numpy as np

from stiffnet.observe.epochs import first_differences
from stiffnet.results.growth import Growth
from stiffnet.results.stripes import ModuleStripes, StripeReport


def module(step, channels=6, kept=5, *, seed=0):
    random = np.random.default_rng(seed)
    values = random.random(channels) + 0.05 * random.random((kept, channels))
    values[0, 0] = np.nan
    inputs = random.normal(size=(kept, channels))
    return ModuleStripes(
        step=step,
        module="se",
        spatial=seed == 1,
        score=0.95,
        cost=0.031,
        silent=1,
        value_mean=np.nanmean(values, axis=0),
        value_std=np.nanstd(values, axis=0, ddof=1),
        input_mean=inputs.mean(axis=0),
        input_std=inputs.std(axis=0, ddof=1),
        values=values,
        inputs=inputs,
    )


def report(steps=("layer1.0", "layer1.1", "layer2.0"), *, whole=True, channels=6):
    made = StripeReport(
        modules=tuple(module(step, channels, seed=i) for i, step in enumerate(steps)),
        samples=40,
        number=np.arange(0, 40, 8),
        facts={"model": "small network", "data": "made up"},
    )
    if not whole:
        return made
    random = np.random.default_rng(9)
    values = {e: {step: random.random((4, channels)) for step in steps} for e in range(1, 5)}
    return made.adding(drift=first_differences(values), growth=growth(steps))


def growth(steps):
    depth = np.arange(1.0, len(steps) + 1)
    return Growth(
        steps=tuple(steps),
        images=2,
        draws=3,
        epsilon=1e-3,
        gate=np.full(len(steps), 0.5),
        shortcut=np.ones(len(steps)),
        rate=np.full(len(steps), 2.0),
        log_growth=0.1 * depth,
        log_growth_max=0.2 * depth,
        log_local=0.5 * depth,
        log_bound=np.log(2.0) * depth,
        nearest=np.full(len(steps), 0.9),
    )


def poisoned(text):
    """Return a report whose every string is the given one; steps are told apart by a number."""
    made = report([f"{i} {text}" for i in range(3)])
    modules = tuple(replace(each, module=text) for each in made.modules)
    return replace(made, modules=modules, facts={"model": text, text: text})
