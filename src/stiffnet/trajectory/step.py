"""The record of one residual step: where it is, and where its operands are met in a pass."""

from dataclasses import dataclass

ATTACHED = "attached_as"
"""Attribute of a module that was attached to a step: it scales the rate that it is given."""


@dataclass(frozen=True)
class Site:
    """Where in a forward pass a value can be met: one operand of one addition or product.

    Additions and products are numbered within the own code of a module, over one forward pass.
    """

    module: str
    kind: str  # "add", "mul", or "block" for the change that a whole module makes
    number: int
    operand: int
    of: int  # how many of its kind the module's code has in one pass
    dims: int  # number of axes of the value
    axis: int = 0  # which axis counts the samples
    entries: int = 1  # how many entries of that axis belong to one sample
    tokens: tuple[int, ...] | None = None  # which axes count tokens; None: nobody has looked


@dataclass(frozen=True)
class Step:
    """One residual addition of a network."""

    name: str
    """The module's path; ``path#1`` for the second addition in it."""
    stage: int
    """Number of the run of steps with one state shape, from 0."""
    shape: tuple[int, ...]
    """Shape of the state of one sample."""
    identity: bool
    """The shortcut hands the state through unchanged."""
    counted: bool
    """Enters TNS and the stiffness proportion: every step of a stage but its first."""
    branch: tuple[str, ...]
    """Paths of the modules that compute the rate."""
    gates: tuple[str, ...]
    """Paths of what multiplies the rate with a step size: attention, layer scale, a constant."""
    state_at: Site
    increment_at: Site
    rate_at: Site

    @property
    def module(self) -> str:
        """Path of the module whose code adds; a gate would go on `increment_at` in it."""
        return self.state_at.module
