"""How a perturbation grew through the steps of a network, against what it was bound to."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from stiffnet.results.record import Record
from stiffnet.stiffness.given import Floats


@dataclass(frozen=True, eq=False)
class Growth(Record):
    """The growth of a perturbation through a network, step by step, and two bounds on it.

    With x_t what goes into step t, the sum x_{t+1} = s_t + Δt_t ⊗ f_t of a shortcut and a gated
    rate grows a perturbation by at most ‖∂s/∂x‖ + α_t ‖∂f/∂x‖, where α_t is the largest gate.
    The product of these factors is Theorem 6.1's bound, with the rate's Jacobian at the image for
    its W_t. It takes gates for constants. The product of ‖∂x_{t+1}/∂x_t‖ is below it and sure for
    any gate. Both are of first order: sure for perturbations that tend to zero. Products are kept
    as their logarithms, because those of deep networks leave float64's range.
    """

    KIND = "growth report"
    AGAIN = "Call `stiffnet.growth` again"

    steps: tuple[str, ...]
    images: int
    draws: int
    """Random perturbations of each image."""
    epsilon: float
    """Their size as a share of that of the state they are added to."""
    gate: Floats
    """α_t: the largest factor between the rate and what is added; mean over images."""
    shortcut: Floats
    """‖∂s_t/∂x_t‖: one for an identity; mean over images."""
    rate: Floats
    """‖∂f_t/∂x_t‖, the reading of ‖W_t‖; mean over images."""
    log_growth: Floats
    """Of the perturbation after each step, mean over images and draws."""
    log_growth_max: Floats
    log_local: Floats
    """Of ∏ ‖∂x_{t+1}/∂x_t‖, mean over images."""
    log_bound: Floats
    """Of ∏ (‖∂s/∂x‖ + α ‖∂f/∂x‖), mean over images."""
    nearest: Floats
    """Largest ratio of growth to bound of any image and draw; above one the bound was broken."""

    facts: Mapping[str, str] = field(default_factory=dict)
    """What made it: model, versions."""

    def __repr__(self) -> str:
        return (
            f"Growth({self.title!r}, images={self.images}, steps={len(self.steps)}, "
            f"growth={np.exp(self.log_growth[-1]):.3g}, bound={np.exp(self.log_bound[-1]):.3g})"
        )

    def to_frame(self) -> pd.DataFrame:
        """One row a step, in the order in which they run; averages of products are geometric."""
        with np.errstate(over="ignore"):
            return pd.DataFrame(
                {
                    "step": list(self.steps),
                    "gate_max": self.gate,
                    "shortcut_norm": self.shortcut,
                    "rate_norm": self.rate,
                    "factor": np.exp(np.diff(self.log_bound, prepend=0.0)),
                    "growth": np.exp(self.log_growth),
                    "growth_max": np.exp(self.log_growth_max),
                    "local_bound": np.exp(self.log_local),
                    "bound": np.exp(self.log_bound),
                    "share_of_bound": self.nearest,
                }
            )
