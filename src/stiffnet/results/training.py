"""The log of a training run, as a result that pages show."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from stiffnet.results.record import Record


@dataclass(frozen=True)
class TrainingLog(Record):
    """What a run learnt, epoch by epoch."""

    KIND = "training log"
    AGAIN = "Read the run again"

    rows: tuple[Mapping[str, Any], ...]
    """One an epoch, as `log.jsonl` has them."""
    finished: bool
    """Whether the run has come to its end."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Of its recipe: model, attention, data, seed, and others."""

    @property
    def title(self) -> str:
        """What was trained, and where."""
        parts = [self.facts.get(key, "") for key in ("model", "attention")]
        named = " with ".join(part for part in parts if part and part != "none")
        return f"{named or 'network'} on {self.facts.get('data', 'its data')}"

    def to_frame(self) -> pd.DataFrame:
        """One row an epoch."""
        return pd.DataFrame(list(self.rows))
