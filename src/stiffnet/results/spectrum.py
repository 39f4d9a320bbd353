"""The eigenvalues behind the stiffness of one step at one input, and of many."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from stiffnet.results.record import Record

Complexes = npt.NDArray[np.complex128]


@dataclass(frozen=True, eq=False)
class Spectrum(Record):
    """The eigenvalues of the Jacobian of a step at one input.

    `max_real`, `min_real` and `radius` are those of all eigenvalues, whichever of them are kept.
    """

    KIND = "spectrum"
    AGAIN = "Compute it again"

    step: str
    of: str
    """``"branch"``, what is added to the state, or ``"block"``, with shortcut and activation."""
    method: str
    shape: tuple[int, ...]
    """Of the state that goes in."""
    shape_out: tuple[int, ...]
    eigenvalues: Complexes
    """All of them, zeros included; for ``krylov`` those at the ends; for ``planes`` a choice."""
    count: int
    """How many there are in all; 0 where the shape changes, so that there are none."""
    inner: int
    """Rows of the matrix that was formed; 0 where there was none."""
    cut: str
    """The operation behind which the step was cut, if it was."""
    tolerance: float
    """A real part up to this share of the largest |λ| is zero (for ``planes``, of its slice)."""
    negative_share: float | None
    """P: the share of eigenvalues with a negative real part; None where not all are known."""
    outside_share: float | None
    """The share outside of |1 + λ| ≤ 1, in which forward Euler is stable; None likewise."""
    residual: float | None
    """Of iterations: the largest ‖J v - λ v‖ over the largest |λ|; None for direct methods."""
    products: int | None
    """How often iterations applied the Jacobian; None for direct methods."""
    condition: float | None
    """Of the eigenvalue of the largest |Re|: how far a change of the Jacobian moves it."""
    norm: float | None
    """‖J‖₂, the largest singular value."""
    singular_values: npt.NDArray[np.float64]
    """The largest ones, where the shape changes; else none."""
    elements: int
    """Entries of the Jacobian."""
    seconds: float
    peak_bytes: int | None
    """Largest memory of the process meanwhile; None where the system does not tell."""
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def max_real(self) -> float | None:
        """The largest real part; None where there are no eigenvalues."""
        return float(self.eigenvalues.real.max()) if len(self.eigenvalues) else None

    @property
    def min_real(self) -> float | None:
        """The smallest real part; None likewise."""
        return float(self.eigenvalues.real.min()) if len(self.eigenvalues) else None

    @property
    def radius(self) -> float | None:
        """ρ, the largest |λ|; None likewise."""
        return float(np.abs(self.eigenvalues).max()) if len(self.eigenvalues) else None

    @property
    def real_extent(self) -> float | None:
        """ζ_SI, the largest |Re λ|; None likewise."""
        return float(np.abs(self.eigenvalues.real).max()) if len(self.eigenvalues) else None

    @property
    def stiffness_index(self) -> float | None:
        """S = max Re λ / min Re λ, with its sign; None where min Re λ is zero or not there."""
        if self.max_real is None or self.min_real is None or self.radius is None:
            return None
        if abs(self.min_real) <= self.tolerance * self.radius:
            return None
        return self.max_real / self.min_real

    @property
    def absolute_index(self) -> float | None:
        """|S|; None likewise."""
        return None if self.stiffness_index is None else abs(self.stiffness_index)

    @property
    def non_normality(self) -> float | None:
        """‖J‖₂ / ρ: one for a normal Jacobian, and larger the further it is from one."""
        return self.norm / self.radius if self.norm is not None and self.radius else None

    def row(self) -> dict[str, Any]:
        """Return everything but the eigenvalues, as a row of a table."""
        names = (
            "step", "of", "method", "stiffness_index", "absolute_index", "negative_share",
            "real_extent", "radius", "max_real", "min_real", "outside_share", "condition",
            "non_normality", "norm", "count", "elements", "inner", "cut", "residual", "seconds",
            "peak_bytes",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def to_frame(self) -> pd.DataFrame:
        """One row an eigenvalue: its parts, its size, and its distance from Euler's centre -1."""
        values = self.eigenvalues
        return pd.DataFrame(
            {
                "real": values.real,
                "imaginary": values.imag,
                "size": np.abs(values),
                "from_centre": np.abs(1 + values),
            }
        )
