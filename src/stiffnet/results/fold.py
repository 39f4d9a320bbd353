"""What a fold did, in numbers and sentences."""

from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from torch import nn

from stiffnet.network.deployed import Change

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
class FoldReport:
    """What was folded into what, what was not and why, and what that saves."""

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

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        kinds: dict[str, int] = {}
        for item in self.folded:
            kinds[item.kind] = kinds.get(item.kind, 0) + 1
        yield "Folded: " + ", ".join(f"{count} × {kind}" for kind, count in kinds.items())
        for left in self.refused:
            yield f"Left: {left.name}, because {left.reason}"
        table = Table("", "before", "after")
        table.add_row("parameters", f"{self.before.parameters:,}", f"{self.after.parameters:,}")
        if self.before.macs is not None and self.after.macs is not None:
            table.add_row("MACs an image", f"{self.before.macs:,}", f"{self.after.macs:,}")
            table.add_row("FLOPs an image", f"{self.before.flops:,}", f"{self.after.flops:,}")
        if self.before.seconds and self.after.seconds:
            times = (f"{1e3 * cost.seconds:.1f} ms" for cost in (self.before, self.after))  # type: ignore[operator]
            table.add_row(f"a pass of {self.images} images", *times)
            rates = (f"{self.images / cost.seconds:.0f}" for cost in (self.before, self.after))  # type: ignore[operator]
            table.add_row("images/s", *rates)
        yield table
        if self.places:
            yield (
                f"Outputs are chosen by their order; {', '.join(self.places)}, before that, differ "
                f"by {self.scaled_error:.1e} of the largest number."
            )
        else:
            yield f"Outputs differ by {self.scaled_error:.1e} of the largest output."
        yield from self.notes


@dataclass(frozen=True)
class FoldResult:
    """A network without what was folded into it."""

    model: nn.Module
    report: FoldReport
