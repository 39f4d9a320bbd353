"""How the structure of a folded network differs from its backbone's: the record of one change."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Change:
    """One change of a network's structure; `network.deployed` makes it again."""

    kind: Literal["branches", "norm"]
    path: str
    """Of the module with the branches, or of the norm."""
    into: str = ""
    """Of the layer that took the norm in."""
