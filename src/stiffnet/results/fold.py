"""What a fold did, in numbers and sentences; and a network's forms side by side."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from stiffnet.results.changes import Change
from stiffnet.results.record import Record

INDEX_CHANGES = (
    "A gate that was folded is a part of its step's rate now, and NSI is taken before gates: NSI "
    "and TNS of the folded network differ from the original's. The increment's total is the same."
)
"""The index of stiffness of a gated step, before and after folding."""


@dataclass(frozen=True)
class Folded:
    """One thing that is no longer in the network, and where it went."""

    name: str
    """Path of the gate, of the module with the branches, or of the norm."""
    kind: str
    """What it was: the gate's module, ``"branches"`` or ``"norm"``."""
    into: tuple[str, ...]
    """Paths of what took it in."""


def as_folded(change: Change) -> Folded:
    """A change of a network's structure, as something that went somewhere."""
    into = change.path if change.kind == "branches" else change.into
    return Folded(change.path, change.kind, (into,))


@dataclass(frozen=True)
class Refused:
    """One thing that stays in the network, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Cost:
    """What one pass of a network costs."""

    parameters: int
    macs: int | None = None
    """Multiplications with addition in convolutions, linear layers and attention, an image; None
    where they cannot be counted."""
    seconds: float | None = None
    """Median time of one pass of the example; None where it was not taken."""

    @property
    def flops(self) -> int | None:
        """Floating-point operations: two for each of `macs`."""
        return None if self.macs is None else 2 * self.macs


@dataclass(frozen=True)
class FoldReport(Record):
    """What was folded into what, what was not and why, and what that saves."""

    KIND = "fold report"
    AGAIN = "Fold again"

    folded: tuple[Folded, ...]
    refused: tuple[Refused, ...]
    scaled_error: float
    """Largest difference of the outputs, over the largest output, in the network's own dtype."""
    exact_error: float | None
    """The same in float64, before rounding to that dtype; None where the network cannot run so."""
    before: Cost
    after: Cost
    images: int
    """In the example that both were run on."""
    changes: tuple[Change, ...] = field(default=(), repr=False)
    """How the structure differs from the backbone's; see `network.deployed`."""
    places: tuple[str, ...] = ()
    """Modules whose results `scaled_error` is of, where the outputs are chosen by their order, as a
    detector's boxes are; none where it is of the outputs."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What made it: model, data, versions, command."""

    @property
    def parameters_before(self) -> int:
        """How many the network had."""
        return self.before.parameters

    @property
    def parameters_after(self) -> int:
        """How many it has now."""
        return self.after.parameters

    @property
    def notes(self) -> tuple[str, ...]:
        """What changes though the outputs do not, in sentences."""
        gates = any(item.kind not in ("branches", "norm") for item in self.folded)
        return (INDEX_CHANGES,) if gates else ()

    def to_frame(self) -> pd.DataFrame:
        """One row for each thing that was folded, then one for each that stays."""
        folded = [(item.name, True, item.kind, ", ".join(item.into), "") for item in self.folded]
        left = [(item.name, False, "", "", item.reason) for item in self.refused]
        return pd.DataFrame([*folded, *left], columns=["name", "folded", "kind", "into", "reason"])

    def costs(self) -> pd.DataFrame:
        """One row before and one after: what a pass costs; NaN where that is not known."""
        rows = []
        for form, cost in (("before", self.before), ("after", self.after)):
            rate = cost.seconds and self.images / cost.seconds
            rows.append((form, cost.parameters, cost.macs, cost.flops, cost.seconds, rate))
        floats = ["macs", "flops", "seconds", "images_per_second"]
        frame = pd.DataFrame(rows, columns=["form", "parameters", *floats])
        return frame.astype(dict.fromkeys(floats, float))
