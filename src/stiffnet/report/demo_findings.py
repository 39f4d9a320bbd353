"""What a demo says, in sentences: computed from its record, for the page and the terminal."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stiffnet.report import fold, stiffness_findings
from stiffnet.report.cells import p_value
from stiffnet.report.text import (
    MISSING,
    clean,
    count,
    finite,
    fixed,
    images,
    number,
    percent,
    strong,
    tenths,
)
from stiffnet.results.demo import DemoNetwork, DemoReport, TimedForm
from stiffnet.results.spectra import SpectrumReport
from stiffnet.stiffness.relate import relate
from stiffnet.words import listed

ALPHA = 0.05  # p-values above it are not put into words as a relation
_NAME = 40  # characters of a network's name in a sentence


def name_of(thing: DemoNetwork | TimedForm) -> str:
    """What a network or form is called, harmless and short."""
    return clean(thing.name, longest=_NAME)


def answer(report: DemoReport) -> list[str]:
    """Say in a few sentences how stiff, what attention cost, and what folding gave back."""
    plain, constant = report.networks[0], report.networks[-1]
    gated = [report.form(network.name) for network in report.networks[1:]]
    folded = report.forms[len(report.networks)]
    said = [_trained(report), f"{change(plain)} {_costs(gated)}"]
    back = f"Folded into the weights, {name_of(constant)} {_speed(folded)}"
    return [*said, f"{back}, and {_same(report, folded)}."]


def _trained(report: DemoReport) -> str:
    networks = listed([name_of(network) for network in report.networks])
    right = [finite(network.after.accuracy) for network in report.networks]
    known = [each for each in right if each is not None]
    seed = clean(report.facts.get("seed", MISSING), longest=20)
    many = count(len(report.networks))
    said = f"{many} networks were trained from one random seed ({seed}): {networks}"
    if not known:
        return f"{said}."
    low, high = tenths(min(known)), tenths(max(known))
    tested = images(report.networks[0].after.samples)
    between = strong(low) if low == high else f"{strong(low)} to {strong(high)}"
    return f"{said}. They get {between} of {tested} right."


def change(network: DemoNetwork) -> str:
    """Say how training changed the total neural stiffness of a network."""
    views = [getattr(network, when).view(f"{name_of(network)} {when} training")
             for when in ("before", "after")]  # fmt: skip
    said = stiffness_findings.comparison(views)
    return said[0] if said else f"{name_of(network)} has no total neural stiffness (TNS)."


def _costs(gated: Sequence[TimedForm]) -> str:
    return (
        f"Attention is not free: {listed([f'{name_of(each)} {_speed(each)}' for each in gated])}."
    )


def _speed(form: TimedForm) -> str:
    """Say how fast a form is beside the plain network, if its timed passes can tell."""
    ratio, interval = form.ratio, form.interval
    if interval is None:
        few = "from too few passes for an interval"
        return f"runs at {strong(f'{fixed(ratio, 2)} times')} the plain network's speed, {few}"
    low, high = interval
    within = f"95 % interval {fixed(low, 2)} to {fixed(high, 2)}"
    if low <= 1 <= high:
        same = strong("cannot be told from the plain network")
        return f"{same} in speed ({fixed(ratio, 2)} times it, {within})"
    return f"runs at {strong(f'{fixed(ratio, 2)} times')} the plain network's speed ({within})"


def _same(report: DemoReport, folded: TimedForm) -> str:
    error = finite(folded.scaled_error)
    differ = MISSING if error is None else f"{error:.0e}"
    return f"its outputs differ from those before by {strong(differ)} of the largest"


def one_seed(report: DemoReport) -> str:
    """Say what can not be said from one seed."""
    seed = clean(report.facts.get("seed", MISSING), longest=20)
    return (
        f"All of this is from one seed ({seed}). Intervals and p-values are over images, or over "
        "timed passes: they hold for these trained networks, and say nothing about how another "
        "seed would come out. Which module is better cannot be told here; `stiffnet study "
        "stepnet-table1` compares several seeds."
    )


def where(network: DemoNetwork) -> str:
    """Say at which steps a trained network is stiff."""
    found = stiffness_findings.findings(network.after.view())
    return found[0] if found else "No step moves the state."


def eigenvalues(spectrum: SpectrumReport) -> list[str]:
    """Say of a step's eigenvalues which would grow anyhow, and which because the step is long."""
    [step] = spectrum.steps
    found = spectrum.spectra[step]
    values = np.concatenate([each.eigenvalues for each in found])
    if any(each.negative_share is None for each in found) or not len(values):
        return []
    zero = np.concatenate(
        [np.full(len(each.eigenvalues), each.tolerance * (each.radius or 0.0)) for each in found]
    )
    negative, positive = values.real < -zero, values.real > zero
    far = negative & (np.abs(1 + values) > 1 + 1e-9)
    least = float(values.real.min())
    said = [
        f"{strong(percent(positive.mean()))} of its eigenvalues have a positive real part: these "
        "perturbations grow in the equation itself, whatever the step size."
    ]
    if far.any():
        longest = float((-2 * values[far].real / np.abs(values[far]) ** 2).min())
        said.append(
            f"{strong(percent(far.mean()))} decay in the equation, and grow all the same because a "
            f"step of size 1 is too long for them: the longest stable one would be "
            f"{strong(number(longest, 2))}. This is stiffness in the classical sense."
        )
    elif negative.any():
        said.append(
            "No perturbation that decays in the equation grows because of the step size: the most "
            f"negative real part is {strong(number(least, 2))}, and −2 is the limit for real "
            "eigenvalues. By its eigenvalues alone, this step is not too long."
        )
    return said


def step_sizes(network: DemoNetwork) -> list[float | None]:
    """Return the mean increment over the mean NSI of every step: what the gate multiplies by."""
    frame = network.after.to_frame()
    pairs = zip(frame["increment_mean"], frame["nsi_mean"], strict=True)
    return [finite(increment / nsi) if nsi else None for increment, nsi in pairs]


def chosen(network: DemoNetwork) -> str:
    """Say which step sizes a module chose, and whether they are smaller where it is stiffer."""
    frame, sizes = network.after.to_frame(), step_sizes(network)
    known = [
        (size, str(step))
        for size, step in zip(sizes, frame["step"], strict=True)
        if size is not None
    ]
    if not known:
        return f"{name_of(network)} lets nothing through."
    (low, least), (high, most) = min(known), max(known)
    said = (
        f"{name_of(network)} multiplies what a branch adds by {strong(number(low, 2))} (at "
        f"{clean(least, longest=60)}) to {strong(number(high, 2))} (at {clean(most, longest=60)})."
    )
    return f"{said} {_related(frame['nsi_mean'].to_numpy(dtype=float), sizes)}"


def _related(nsi: Any, sizes: Sequence[float | None]) -> str:
    """Say whether step sizes go with NSI over the steps."""
    kept = [i for i, size in enumerate(sizes) if size is not None and np.isfinite(nsi[i])]
    values, targets = nsi[kept], np.array([sizes[i] for i in kept], dtype=float)
    table = relate({"NSI": values}, {"step size": targets}) if len(kept) > 2 else None
    rank = None if table is None else finite(table["spearman"].iloc[0])
    chance = None if table is None else finite(table["spearman_p"].iloc[0])
    if rank is None or chance is None:
        return ""
    told = f"rank correlation {fixed(rank, 2)} over {count(len(kept))} steps, p {p_value(chance)}"
    if chance > ALPHA:
        return f"Whether it takes smaller steps where NSI is larger cannot be told ({told})."
    way = "smaller" if rank < 0 else "larger"
    return f"It takes {strong(way)} steps where NSI is larger ({told})."


def proof(report: DemoReport) -> list[str]:
    """Say what was folded, and how far the outputs differ before and after rounding."""
    said = [fold.headline(report.fold), fold.agreement(report.fold)]
    exact = finite(report.fold.exact_error)
    if exact is not None:
        said.append(
            f"In float64, before the weights are rounded to those of the network, they differ by "
            f"{strong(f'{exact:.0e}')}: the fold itself is exact, and what is left is rounding."
        )
    constant, folded = report.form(report.networks[-1].name), report.forms[len(report.networks)]
    if None not in (constant.accuracy, folded.accuracy):
        tested = images(report.networks[-1].after.samples)
        same = constant.accuracy == folded.accuracy
        now = strong(tenths(folded.accuracy))
        said.append(
            f"It gets as many of {tested} right as before: {now}."
            if same
            else f"It gets {now} of {tested} right, and {tenths(constant.accuracy)} before."
        )
    return said


def speeds(report: DemoReport) -> list[str]:
    """Say how fast every form is beside the plain network."""
    return [f"{_upper(name_of(form))} {_speed(form)}." for form in report.forms[1:]]


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
