"""What a demo says, in sentences: computed from its record, for the page and the terminal."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stiffnet.report import fold, stiffness_findings
from stiffnet.report.cells import p_value
from stiffnet.report.text import (
    MISSING,
    capital,
    clean,
    count,
    finite,
    fixed,
    images,
    magnitude,
    number,
    percent,
    strong,
    tenths,
    with_error,
)
from stiffnet.results.demo import DemoNetwork, DemoReport, TimedForm
from stiffnet.results.spectra import SpectrumReport
from stiffnet.stiffness.relate import relate
from stiffnet.words import listed

ALPHA = 0.05  # p-values above it are not put into words as a relation
NETWORKS_NOT_MODULES = (
    "These are differences of networks that were trained from one seed, and not of the modules: "
    "another seed may turn them around."
)
_NAME = 40  # characters of a network's name in a sentence


def name_of(thing: DemoNetwork | TimedForm) -> str:
    """What a network or form is called, harmless and short."""
    return clean(thing.name, longest=_NAME)


def answer(report: DemoReport) -> list[str]:
    """Say in a few sentences how stiff, what attention cost, and what folding gave back."""
    constant, folded = report.networks[-1], report.forms[len(report.networks)]
    gated = [report.form(each.name) for each in report.networks[1:]]
    return [
        _trained(report),
        f"{_beside(gated)} Folded into the weights, {name_of(constant)} {_speed(folded)}, and its "
        f"outputs differ from those before by {strong(magnitude(folded.scaled_error))} of the "
        "largest.",
    ]


def _trained(report: DemoReport) -> str:
    """Say what was trained, how well, and what that did to the stiffness of the plain network."""
    networks, plain = report.networks, report.networks[0]
    known = [right for each in networks if (right := finite(each.after.accuracy)) is not None]
    said = f"From one random seed, {listed([name_of(each) for each in networks])} networks learnt "
    said += f"{clean(report.facts.get('data', 'the same images'), longest=60)}"
    if known:
        low, high = tenths(min(known)), tenths(max(known))
        between = strong(low) if low == high else f"{strong(low)} to {strong(high)}"
        said += f", and get {between} of {images(plain.after.samples)} right"
    totals = [
        (finite(each.tns), with_error(each.tns, each.tns_se))
        for each in (plain.before, plain.after)
    ]
    (before, then), (after, now) = totals
    if before is None or after is None:
        return f"{said}."
    way = "lowered" if after < before else "raised"
    if stiffness_findings.alike(plain.before.view(), plain.after.view()):
        way = "did not clearly change"
    return (
        f"{said}. Training {way} the total neural stiffness (TNS) of the plain network: "
        f"{strong(then)} before, {strong(now)} after."
    )


def _beside(forms: Sequence[TimedForm]) -> str:
    """Say which forms are as fast as the plain network, and how fast the others are."""
    apart, alike = ([form for form in forms if _apart(form) is told] for told in (True, False))
    said = []
    if apart:
        times = strong(listed([fixed(form.ratio, 2) for form in apart]))
        verb = "runs" if len(apart) == 1 else "run"
        said.append(f"{_names(apart)} {verb} at {times} times the plain network's speed.")
    if alike:
        said.append(f"{_names(alike)} cannot be told from the plain network in speed.")
    return " ".join(said)


def _names(forms: Sequence[TimedForm]) -> str:
    return listed([name_of(form) for form in forms])


def _apart(form: TimedForm) -> bool:
    """Say whether the passes of a form show that it is not as fast as the plain network."""
    low, high = form.interval or (-np.inf, np.inf)
    return not low <= 1 <= high


def change(network: DemoNetwork) -> str:
    """Say how training changed the total neural stiffness of a network."""
    views = [getattr(network, when).view(f"{name_of(network)} {when} training")
             for when in ("before", "after")]  # fmt: skip
    said = stiffness_findings.comparison(views)
    return said[0] if said else f"{name_of(network)} has no total neural stiffness (TNS)."


def _speed(form: TimedForm) -> str:
    """Say how fast a form is beside the plain network, if its timed passes can tell."""
    times = strong(f"{fixed(form.ratio, 2)} times")
    at = f"runs at {times} the plain network's speed"
    if form.interval is None:
        return f"{at}, from too few passes for an interval"
    within = "95 % interval {} to {}".format(*(fixed(end, 2) for end in form.interval))
    if not _apart(form):
        return f"cannot be told from the plain network in speed ({times} it, {within})"
    return f"{at} ({within})"


def one_seed(report: DemoReport) -> str:
    """Say what can not be said from one seed."""
    seed = clean(report.facts.get("seed", MISSING), longest=20)
    return (
        f"All of this is from one seed ({seed}). Intervals and p-values are over images or timed "
        "passes: they hold for these trained networks, and another seed may put them in another "
        "order. Which module is better cannot be told here; the command “stiffnet study "
        "stepnet-table1” compares modules over several seeds."
    )


def where(network: DemoNetwork) -> str:
    """Say at which steps a trained network is stiff."""
    found = stiffness_findings.findings(network.after.view())
    return found[0] if found else "No step moves the state."


def which(report: DemoReport, step: str) -> str:
    """Say why this step was looked at."""
    stiffest = report.networks[0].after.stiffest_steps(1)["step"].tolist()
    if stiffest == [step]:
        return "the stiffest counted step of the trained plain network"
    return "of the trained plain network's counted steps the stiffest that is small enough"


def eigenvalues(spectrum: SpectrumReport) -> list[str]:
    """Say what a step does to perturbations: which grow anyhow, and which as the step is long."""
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
    said = [
        f"{strong(percent(positive.mean()))} of the eigenvalues have a positive real part: such "
        "perturbations grow in the equation itself, whatever the step size."
    ]
    if not negative.any():
        return said
    least = float(values.real.min())
    fastest = f"The fastest decay has the real part {strong(number(least, 2))}, for which "
    fastest += f"forward Euler is stable up to a step of {strong(number(-2 / least, 2))}"
    said.append(
        f"{fastest}; a residual step has size 1. "
        + (
            "It is too long, as the longest step above was."
            if least < -2
            else "By its fastest decay this step is not too long, unlike the longest one above."
        )
    )
    if far.any():
        turn = bool((np.abs(values[far].imag) > np.abs(values[far].real)).all())
        why = ", because they turn more than they decay" if turn else ""
        said.append(
            f"{strong(percent(far.mean()))} of them decay in the equation and grow in a step of "
            f"size 1 all the same{why}."
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
    related = _related(frame["nsi_mean"].to_numpy(dtype=float), sizes)
    return " ".join(filter(None, (said, _moved(network), related)))


def _moved(network: DemoNetwork) -> str:
    """Give the total of what is really added, beside TNS, which is taken before the gates."""
    after = network.after
    if None in (finite(after.increment_total), finite(after.tns)):
        return ""
    total = strong(with_error(after.increment_total, after.increment_total_se))
    tns = with_error(after.tns, after.tns_se)
    return f"With the gates in, the total is {total}; TNS, which is taken before them, is {tns}."


def _related(nsi: Any, sizes: Sequence[float | None]) -> str:
    """Say whether step sizes go with NSI over the steps."""
    kept = [i for i, size in enumerate(sizes) if size is not None and np.isfinite(nsi[i])]
    values, targets = nsi[kept], np.array([sizes[i] for i in kept], dtype=float)
    if len(kept) < 3:
        return ""
    table = relate({"NSI": values}, {"step size": targets})
    rank, chance = (finite(table[name].iloc[0]) for name in ("spearman", "spearman_p"))
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
    return [f"{capital(name_of(form))} {_speed(form)}." for form in report.forms[1:]]
