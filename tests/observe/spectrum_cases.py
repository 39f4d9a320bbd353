"""Reports on spectra with eigenvalues from a fixed seed, and none that was measured."""

from dataclasses import replace

import numpy as np

from stiffnet.results.spectra import Seen, SpectrumReport
from stiffnet.results.spectrum import Spectrum


def spectrum(step="layer1.0", *, seed=0, size=40, shift=0.0, **changes):
    """A spectrum in conjugate pairs, with a few zeros."""
    random = np.random.default_rng(seed)
    half = random.normal(shift, 1, size // 4) + 1j * random.normal(0, 0.5, size // 4)
    values = np.concatenate([half, half.conj(), np.zeros(size - 2 * len(half))])
    made = Spectrum(
        step=step,
        of="branch",
        method="reduced",
        shape=(size,),
        shape_out=(size,),
        eigenvalues=values,
        count=size,
        inner=2 * len(half),
        cut="relu",
        tolerance=1e-9,
        negative_share=float((values.real < 0).mean()),
        outside_share=float((np.abs(1 + values) > 1 + 1e-9).mean()),
        residual=None,
        products=None,
        condition=2.0,
        norm=3.0 * float(np.abs(values).max()),
        singular_values=np.zeros(0),
        elements=size**2,
        seconds=0.25,
        peak_bytes=1 << 20,
        facts={"model": "small network"},
    )
    return replace(made, **changes)


def changing(step, **changes):
    """A step that changes the shape: singular values only."""
    return spectrum(
        step, method="krylov", shape=(8, 4, 4), shape_out=(16, 2, 2), count=0, inner=0, cut="",
        eigenvalues=np.zeros(0, complex), negative_share=None, outside_share=None, condition=None,
        norm=2.5, singular_values=np.array([2.5, 1.5]), elements=8192, **changes,
    )  # fmt: skip


def report(
    steps=("layer1.0", "layer1.1", "layer2.0", "layer2.1"), *, images=6, labelled=True, size=40
):
    random = np.random.default_rng(5)
    seen = tuple(
        Seen(7 * i, i % 2, float(random.exponential()), bool(random.random() < 0.5))
        if labelled else Seen(7 * i)
        for i in range(images)
    )  # fmt: skip
    spectra = {
        step: tuple(
            changing(step) if j == 2
            else spectrum(step, seed=10 * i + j, size=size, shift=-0.2 * j)
            for i in range(images)
        )
        for j, step in enumerate(steps)
    }  # fmt: skip
    facts = {"model": "small network", "data": "made up"}
    return SpectrumReport(seen, spectra, ("cat", "dog") if labelled else (), facts)


def poisoned(text):
    """Return a report whose every string is the given one; steps are told apart by a number."""
    made = report([f"{i} {text}" for i in range(4)], images=3, size=16)
    spectra = {
        step: tuple(replace(each, cut=text, method=text) for each in found)
        for step, found in made.spectra.items()
    }
    return replace(made, spectra=spectra, classes=(text, text), facts={"model": text, text: text})
