"""What results on differential equations say, in sentences: for page and terminal."""

from collections.abc import Sequence

import numpy as np

from stiffnet.report.text import count, counted, finite, fixed, number, percent, strong, tenths
from stiffnet.results import ode
from stiffnet.words import listed

AT_BOUND = 0.1  # a step is at the bound if it is nearer to it than this share of it


def on_solutions(given: Sequence[tuple[ode.OdeSolution, str]]) -> str:
    """Say how far apart the indices of a problem are, or of which of several problems."""
    if len(given) == 1:
        return on_solution(*given[0])
    gaps = [(gap, title) for solution, title in given if (gap := apart(solution)) is not None]
    if not gaps:
        return "No step of any solution has both SI and SAI."
    (low, near), (high, far) = min(gaps), max(gaps)
    return (
        f"SI is {strong(f'{number(high, 2)} times')} SAI on {far}, where the two are farthest "
        f"apart, and {number(low, 2)} times SAI on {near} (median over steps)."
    )


def on_solution(solution: ode.OdeSolution, title: str) -> str:
    """Say how stiff a problem is, and whether its solution shows it."""
    gap = apart(solution)
    said = f"{strong(title)} takes {count(len(solution.steps))} steps."
    if gap is not None:
        times = strong(f"{number(gap, 2)} times")
        said += f" SI is {times} SAI (median over its steps)"
        rank = rank_of(solution)
        said += "." if rank is None else f"; their rank correlation is {fixed(rank, 2)}."
    return said


def on_euler(comparison: ode.EulerComparison, title: str) -> str:
    """Say which step sizes are stable."""
    sizes: dict[str, list[str]] = {}
    for step, verb in zip(comparison.steps, effects(comparison), strict=True):
        sizes.setdefault(verb, []).append(f"{step:g}")
    bound = strong(f"up to a step of {comparison.limit:.4g}")
    said = " and ".join(f"{verb} at {listed(steps)}" for verb, steps in sizes.items())
    return f"{title} is stable {bound} (2/|λ| for a real λ). Errors {said}."


def effects(comparison: ode.EulerComparison) -> list[str]:
    """Say of each step size what errors do: by the factor of the fastest-growing mode."""
    verbs = {-1: "shrink", 0: "stay as large", 1: "grow"}
    return [verbs[int(sign)] for sign in np.sign(comparison.amplification - 1)]


def on_steps(given: Sequence[tuple[ode.AdaptiveSteps, str]]) -> str:
    """Say how many steps of an adaptive method stability limits, or of which of several."""
    shares = [(at_bound(record), title) for record, title in given]
    (low, least), (high, most) = min(shares), max(shares)
    if len(given) > 1:
        return (
            f"{strong(percent(high))} of the steps of {most} are within {percent(AT_BOUND)} of the "
            f"stability bound, and {percent(low)} of those of {least}."
        )
    [(record, title)] = given
    said = (
        f"{title}: {strong(percent(high))} of {count(len(record.steps))} steps are within "
        f"{percent(AT_BOUND)} of the stability bound"
    )
    if record.correlation is None:
        return f"{said}; SI never changes."
    return f"{said}; the rank correlation of step and SI is {fixed(record.correlation, 2)}."


def on_theorem(check: ode.Theorem2Check) -> str:
    """Say whether SAI / SI tends to √c."""
    last = int(np.argmax(check.stiffness_index))
    proof = strong(f"{check.instant[last]:.4f}")
    return (
        f"Theorem 2: at SI = {number(check.stiffness_index[last])}, SAI / SI is {proof} as the "
        f"proof reads it, and √c is {check.limit:.4g}. Observed every {check.interval:g} it is "
        f"{number(check.observed[last], 2)}, and at t = {check.later:g} it is "
        f"{number(check.settled[last], 2)}."
    )


def on_encounters(record: ode.Encounters, title: str) -> str:
    """Say which definition of an encounter gives the paper's share of runs."""
    runs = counted(len(record.closest), "run")
    level = ode.reached(record, "runs", ode.PAPER_RUNS)
    if level is None:
        return (
            f"{title}, {runs}: no threshold between {number(record.thresholds.min())} and "
            f"{number(record.thresholds.max())} gives the paper's {tenths(ode.PAPER_RUNS)} of runs."
        )
    shares = {column: ode.share_at(record, column, level) for column in ("time", "intervals")}
    return (
        f"{title}, {runs}: {tenths(ode.PAPER_RUNS)} of them have an encounter if it is a distance "
        f"below {strong(number(level))}. Then {strong(tenths(shares['time']))} of the time is "
        f"inside one, and {tenths(shares['intervals'])} of intervals of {record.interval:g} "
        f"touch one; the paper has {tenths(ode.PAPER_TIME)}."
    )


def apart(solution: ode.OdeSolution) -> float | None:
    """Return the median of SI / SAI over steps, or None where no step has both."""
    si, sai = solution.stiffness_index[:-1], solution.stiffness_aware_index
    known = np.isfinite(sai) & (sai > 0)
    return float(np.median(si[known] / sai[known])) if known.any() else None


def rank_of(solution: ode.OdeSolution) -> float | None:
    """Return Spearman's correlation of SI and SAI over steps, or None where SI is constant."""
    frame = solution.to_frame()
    if not frame["si"].max() > frame["si"].min() * (1 + 1e-9):
        return None
    return finite(frame["si"].corr(frame["sai"], method="spearman"))


def at_bound(record: ode.AdaptiveSteps) -> float:
    """Return the share of steps that are close to the stability bound."""
    products = record.to_frame()["step_times_si"].to_numpy()
    return float((np.abs(products / record.stability - 1) < AT_BOUND).mean())


def span(values: Sequence[float] | np.ndarray) -> str:
    """Write the smallest and the largest number."""
    known = [value for value in values if finite(value) is not None]
    if not known:
        return number(None)
    low, high = f"{min(known):.3g}", f"{max(known):.3g}"
    return low if low == high else f"{low} to {high}"
