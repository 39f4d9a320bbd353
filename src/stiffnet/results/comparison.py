"""Networks on the same images: what differs between the first and each of the others."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import pandas as pd

from stiffnet.results.record import Record
from stiffnet.words import listed

CONFIDENT = 0.05  # p-values at or below it, after Holm's correction, are differences
ROUNDING = 1e-5  # differences below this share of the values are rounding, whatever p says


@dataclass(frozen=True)
class Difference:
    """One quantity of two networks on the same images, paired image by image."""

    name: str
    """Of the step or stage in the first network; empty for a quantity of the whole network."""
    other: str
    """Its name in the second network."""
    first: float
    second: float
    low: float | None
    """Lower end of the 95 % confidence interval of second minus first; None for one image, and for
    fewer than six that all differ by the same amount."""
    high: float | None
    p: float | None
    holm: float | None
    """p corrected for how many quantities of this kind were compared, over all pairs."""

    @property
    def difference(self) -> float:
        """Second minus first."""
        return self.second - self.first

    @property
    def differs(self) -> bool:
        """Whether neither chance nor rounding explains the difference."""
        size = max(abs(self.first), abs(self.second))
        real = abs(self.difference) > ROUNDING * size
        return self.holm is not None and self.holm <= CONFIDENT and real


@dataclass(frozen=True)
class Network:
    """One of the networks, by itself."""

    name: str
    steps: tuple[str, ...]
    stages: tuple[int, ...]
    """The stage of each step."""
    counted: tuple[bool, ...]
    nsi: tuple[float, ...]
    """Mean over the images, of each step."""
    shares: tuple[float, ...]
    """Of each stage: its part of the NSI summed over all steps, mean over the images."""
    tns: float | None
    tns_se: float | None
    accuracy: float | None
    loss: float | None
    facts: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pair:
    """The first network against another one."""

    first: str
    second: str
    matched: str
    """How their steps correspond: by ``name``, by ``position``, or not at all (empty)."""
    reason: str
    """Why they do not; empty where they do."""
    tns: Difference | None
    accuracy: Difference | None
    loss: Difference | None
    steps: tuple[Difference, ...]
    stages: tuple[Difference, ...]
    """Shares of the stages; empty where the networks have different numbers of them."""

    @property
    def wholes(self) -> dict[str, Difference]:
        """What is known of the networks as wholes."""
        found = {"TNS": self.tns, "accuracy": self.accuracy, "loss": self.loss}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, eq=False)
class Comparison(Record):
    """Two or more networks on the same images; every other one is compared with the first.

    Means are compared by the paired t-test over images (by the sign test where all images differ by
    the same amount), accuracy by McNemar's exact test.
    """

    KIND = "comparison of networks"
    AGAIN = "Compare again"

    images: int
    networks: tuple[Network, ...]
    pairs: tuple[Pair, ...]
    facts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert len(self.networks) == len(self.pairs) + 1 > 1, "each one with the first"

    @property
    def title(self) -> str:
        """The names of the networks."""
        return listed([network.name for network in self.networks])

    def to_frame(self) -> pd.DataFrame:
        """One row a comparison: of wholes, then of stages' shares, then of steps, pair by pair."""
        rows = []
        for pair in self.pairs:
            kinds = [
                *((name, each) for name, each in pair.wholes.items()),
                *(("stage share", each) for each in pair.stages),
                *(("NSI", each) for each in pair.steps),
            ]
            rows += [
                {"first_network": pair.first, "second_network": pair.second, "quantity": kind}
                | asdict(each)
                | {"difference": each.difference, "differs": each.differs}
                for kind, each in kinds
            ]
        return pd.DataFrame(rows)
