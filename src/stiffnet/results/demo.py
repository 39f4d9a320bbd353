"""A demo in one record: networks before and after training, a spectrum, a fold, speeds, an ODE."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.stats import binom

from stiffnet.results.comparison import Comparison
from stiffnet.results.fold import FoldReport
from stiffnet.results.ode import EulerComparison
from stiffnet.results.record import Record
from stiffnet.results.spectra import SpectrumReport
from stiffnet.results.stiffness import StiffnessReport
from stiffnet.results.training import TrainingLog


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return a 95 % confidence interval of the median: two of the values, whatever they are like.

    None where there are too few of them, which is up to five.

    >>> median_interval([1.0, 2.0, 3.0]), median_interval(range(1, 11))
    (None, (2, 9))
    """
    order, many = sorted(values), len(values)
    below = int(binom.ppf(0.025, many, 0.5)) if many else 0
    return (order[below - 1], order[many - below]) if below else None


@dataclass(frozen=True)
class TimedForm:
    """A form of a network, timed between passes of the plain network; None is what nobody knows."""

    name: str
    accuracy: float | None
    parameters: int
    macs: int | None
    """Multiplications with addition, an image."""
    rate: float | None
    """Images a second."""
    scaled_error: float | None = None
    """Largest difference of its outputs from those as trained, over the largest output."""
    ratios: tuple[float, ...] = ()
    """Its speed over the plain network's, of each timed pass; empty for the plain network."""

    @property
    def ratio(self) -> float:
        """The median of the ratios; 1 for the plain network itself."""
        return float(np.median(self.ratios)) if self.ratios else 1.0

    @property
    def interval(self) -> tuple[float, float] | None:
        """A 95 % confidence interval of that median."""
        return median_interval(self.ratios)


@dataclass(frozen=True, eq=False)
class DemoNetwork:
    """One network: how stiff it was before and after training, and how it was trained."""

    name: str
    attention: str
    """The module on every step, or ``none``."""
    before: StiffnessReport
    after: StiffnessReport
    log: TrainingLog


@dataclass(frozen=True, eq=False)
class DemoReport(Record):
    """What the demo found, from one seed. The first of its networks has no attention."""

    KIND = "demo"
    AGAIN = "Run the demo again"

    networks: tuple[DemoNetwork, ...]
    comparison: Comparison
    """The trained networks on the same images, each against the first."""
    spectrum: SpectrumReport
    """Of one step of the first network, after training."""
    fold: FoldReport
    """Of the network with constant attention, and how far its outputs differ."""
    forms: tuple[TimedForm, ...]
    """The networks, then the folded and the fused one."""
    batch: int
    """Images in a pass that was timed."""
    euler: EulerComparison
    """Forward Euler on a stiff equation, beside the networks."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What made it: model, data, seed, command, versions."""

    def __post_init__(self) -> None:
        assert len(self.networks) > 1, "networks are compared with the plain one"
        assert len(self.forms) > len(self.networks), "and one of them is folded"

    @property
    def title(self) -> str:
        """What was looked at, and on which images."""
        return f"{self.facts.get('model', 'network')} on {self.facts.get('data', 'its data')}"

    def form(self, name: str) -> TimedForm:
        """Return the form of this name."""
        return next(form for form in self.forms if form.name == name)

    def to_frame(self) -> pd.DataFrame:
        """One row a form: accuracy, TNS before and after training, size and speed."""
        known = {network.name: network for network in self.networks}
        rows = []
        for form in self.forms:
            network = known.get(form.name)
            low, high = form.interval or (None, None)
            rows.append(
                {
                    "name": form.name,
                    "accuracy": form.accuracy,
                    "tns_before": network and network.before.tns,
                    "tns_after": network and network.after.tns,
                    "parameters": form.parameters,
                    "macs": form.macs,
                    "images_per_second": form.rate,
                    "speed": form.ratio,
                    "speed_low": low,
                    "speed_high": high,
                    "scaled_error": form.scaled_error,
                }
            )
        return pd.DataFrame(rows)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Make one of what `to_row` gave."""
        networks = [
            {**each, **{when: StiffnessReport.from_row(each[when]) for when in ("before", "after")}}
            for each in row["networks"]
        ]
        spectrum = SpectrumReport.from_row(row["spectrum"])
        return super().from_row({**row, "networks": networks, "spectrum": spectrum})
