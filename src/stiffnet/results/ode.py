"""What was found on differential equations: solutions, steps, indices, encounters."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from rich.console import RenderableType

from stiffnet.results.record import Record

Floats = npt.NDArray[np.float64]
PAPER_RUNS, PAPER_TIME = 0.914, 0.042
"""The StepNet paper's shares, of runs with an encounter and of time intervals that contain one."""


@dataclass(frozen=True, eq=False)
class OdeRecord(Record):
    """A record of texts, numbers and arrays."""

    AGAIN = "Make it again with `stiffnet ode`"
    TITLE: ClassVar[str]
    """What it is about; `{0}` is the record."""

    facts: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """What made it: versions, command."""

    @property
    def title(self) -> str:
        """What it is about."""
        return self.TITLE.format(self)


@dataclass(frozen=True)
class OdeRecords:
    """Several records, which a terminal shows by what they are about."""

    records: tuple[OdeRecord, ...]

    def __rich__(self) -> RenderableType:
        """Return what a terminal shows."""
        from stiffnet.report.ode import together

        return together(self.records)


@dataclass(frozen=True, eq=False)
class OdeSolution(OdeRecord):
    """A solution at a solver's own steps, and how stiff the problem was on the way."""

    KIND = "solution of a differential equation"
    TITLE = "{0.problem} by {0.solver}"

    problem: str
    solver: str
    rtol: float
    evaluations: int
    """Of the rate."""
    jacobians: int
    times: Floats
    """(steps + 1,)"""
    states: Floats
    """(steps + 1, components)"""
    stiffness_index: Floats
    """SI at every time: the largest |Re λ| of the Jacobian, (steps + 1,)."""
    stiffness_aware_index: Floats
    """SAI of every step, (steps,); NaN where a step starts from a state of norm zero."""
    end_error: float | None
    """max |y - y_ref| / max(|y_ref|, floor) at the end, or None without a reference."""

    @property
    def steps(self) -> Floats:
        """(steps,) sizes of the steps."""
        return np.diff(self.times)

    def to_frame(self) -> pd.DataFrame:
        """One row a step, with the state and the indices where it starts."""
        columns = {f"y{i + 1}": values for i, values in enumerate(self.states[:-1].T)}
        return pd.DataFrame(
            {
                "time": self.times[:-1],
                "step": self.steps,
                "si": self.stiffness_index[:-1],
                "sai": self.stiffness_aware_index,
                **columns,
            }
        )


@dataclass(frozen=True, eq=False)
class EulerComparison(OdeRecord):
    """Forward Euler with several step sizes, against the exact solution."""

    KIND = "comparison of Euler steps"
    TITLE = "forward Euler on {0.problem}"

    problem: str
    limit: float
    """The step size above which some mode grows: min of -2 Re λ / |λ|²."""
    steps: Floats
    amplification: Floats
    """max |1 + h λ| of each step size."""
    times: tuple[Floats, ...]
    states: tuple[Floats, ...]
    errors: tuple[Floats, ...]
    """Largest |y - exact| of the components at each time."""

    def to_frame(self) -> pd.DataFrame:
        """One row a step size."""
        return pd.DataFrame(
            {
                "step": self.steps,
                "amplification": self.amplification,
                "steps": [len(times) - 1 for times in self.times],
                "largest_error": [float(errors.max()) for errors in self.errors],
                "end_error": [float(errors[-1]) for errors in self.errors],
            }
        )


@dataclass(frozen=True, eq=False)
class AdaptiveSteps(OdeRecord):
    """The steps that an adaptive method chose, beside the stiffness where it chose them."""

    KIND = "record of adaptive steps"
    TITLE = "RKF45 on {0.problem}"

    problem: str
    rtol: float
    rejected: int
    """Steps that were tried and found too long."""
    stability: float
    """The method decays on y' = λ y for real λ < 0 while h |λ| is below this."""
    correlation: float | None
    """Spearman's of step size and SI, over steps; None where SI never changes."""
    times: Floats
    steps: Floats
    stiffness_index: Floats
    """SI where each step starts."""

    def to_frame(self) -> pd.DataFrame:
        """One row an accepted step."""
        si = self.stiffness_index
        return pd.DataFrame(
            {"time": self.times, "step": self.steps, "si": si, "step_times_si": self.steps * si}
        )


@dataclass(frozen=True, eq=False)
class Theorem2Check(OdeRecord):
    """SAI / SI of a symmetric linear system while its fastest eigenvalue grows.

    Theorem 2 says that the ratio tends to √c. `instant` reads it as its proof does: the state, the
    forcing and the other eigenvalues are fixed, and the interval tends to zero first.
    """

    KIND = "check of Theorem 2"
    TITLE = "Theorem 2"

    limit: float
    """√c = |c₁| / ‖u‖."""
    interval: float
    """The fixed time between observations of `observed`."""
    later: float
    """When `settled` looks."""
    stiffness_index: Floats
    """|λ₁|"""
    instant: Floats
    """At the start, from observations a millionth of 1 / |λ₁| apart."""
    predicted: Floats
    """√(c + Q), from eigenvalues and coefficients."""
    observed: Floats
    """At the start, from observations `interval` apart, whatever λ₁ is."""
    settled: Floats
    """As the interval tends to zero, but later on the same solution, when its fast part is gone.

    NaN where nothing at all is left of the state.
    """

    def to_frame(self) -> pd.DataFrame:
        """One row an eigenvalue."""
        names = ("stiffness_index", "instant", "predicted", "observed", "settled")
        return pd.DataFrame({name: getattr(self, name) for name in names})


@dataclass(frozen=True, eq=False)
class Encounters(OdeRecord):
    """Close encounters of three bodies in many runs.

    An encounter lasts while the smallest of the three distances is below a threshold. How many
    runs have one, and how long they last, depends on the threshold and on how long a run is.
    """

    KIND = "count of encounters"
    TITLE = "three bodies until t = {0.duration:g}"

    seed: int | None
    """Random seed of the initial states, or None where they were given."""
    duration: float
    interval: float
    """Length of the intervals that `intervals` counts."""
    rtol: float
    thresholds: Floats
    closest: Floats
    """(runs,) smallest distance of any two bodies."""
    time: Floats
    """(runs, thresholds) share of the time inside an encounter."""
    intervals: Floats
    """(runs, thresholds) share of the intervals that an encounter touches."""
    energy_error: Floats
    """(runs,) |E(end) - E(0)| / |E(0)|"""
    momentum_error: Floats
    """(runs,) |L(end) - L(0)|, of the angular momentum."""

    @property
    def runs(self) -> Floats:
        """(thresholds,) share of the runs with an encounter."""
        below: Floats = (self.closest[:, None] < self.thresholds).mean(axis=0)
        return below

    def to_frame(self) -> pd.DataFrame:
        """One row a threshold: shares of runs, of time and of intervals, with standard errors."""
        runs = self.runs
        return pd.DataFrame(
            {
                "threshold": self.thresholds,
                "runs": runs,
                "runs_se": np.sqrt(runs * (1 - runs) / len(self.closest)),
                "time": self.time.mean(axis=0),
                "time_se": pd.DataFrame(self.time).sem(),  # NaN for one run
                "intervals": self.intervals.mean(axis=0),
                "intervals_se": pd.DataFrame(self.intervals).sem(),
            }
        )


def reached(encounters: Encounters, column: str, share: float) -> float | None:
    """Return the threshold at which a share of the frame is reached, or None if it never is."""
    frame = encounters.to_frame().sort_values("threshold")
    shares = frame[column].to_numpy()
    if not shares[0] <= share <= shares[-1]:
        return None
    return float(np.interp(share, shares, frame["threshold"]))


def share_at(encounters: Encounters, column: str, threshold: float) -> float:
    """Return a column of the frame at a threshold between its first and its last."""
    frame = encounters.to_frame().sort_values("threshold")
    return float(np.interp(threshold, frame["threshold"], frame[column]))
