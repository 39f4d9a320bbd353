"""A folded network, and what is known of the fold."""

from dataclasses import dataclass

from torch import nn

from stiffnet.results.fold import FoldReport


@dataclass(frozen=True)
class FoldResult:
    """A network without what was folded into it."""

    model: nn.Module
    report: FoldReport
