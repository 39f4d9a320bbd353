"""Every law, on the network of a seed."""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from fuzz.attaching import hold_attaching
from fuzz.build import Case, case
from fuzz.folding import hold_folding
from fuzz.measuring import hold_measuring
from fuzz.spectra import hold_spectrum
from fuzz.verdicts import REFUSED, RIGHT, WRONG, Verdict, judged

LAWS: dict[str, Callable[[Case], None]] = {
    "measure": hold_measuring,
    "attach": hold_attaching,
    "fold": hold_folding,
    "spectrum": hold_spectrum,
}


def verdicts(seed: int, laws: Iterable[str] = tuple(LAWS)) -> list[Verdict]:
    """Hold the network of a seed to the laws."""
    with case(seed) as made:
        return [judged(seed, law, partial(LAWS[law], made)) for law in laws]


def share(found: Iterable[Verdict], law: str) -> float:
    """Which part of the networks a law was seen to hold on, without a refusal."""
    kinds = [verdict.kind for verdict in found if verdict.law == law]
    return kinds.count(RIGHT) / max(len(kinds), 1)


def told(found: Iterable[Verdict]) -> str:
    """A tally: by law and kind, then the refusals and failures by reason."""
    found = list(found)
    lines = []
    for law in LAWS:
        mine = [verdict for verdict in found if verdict.law == law]
        kinds = Counter(verdict.kind for verdict in mine)
        counts = ", ".join(f"{kinds[kind]} {kind}" for kind in (RIGHT, REFUSED, WRONG))
        lines.append(f"{law}: {counts} of {len(mine)}")
        for kind in (REFUSED, WRONG):
            reasons = Counter(verdict.reason for verdict in mine if verdict.kind == kind)
            for reason, count in reasons.most_common(40):
                seeds = [v.seed for v in mine if v.kind == kind and v.reason == reason]
                some = ", ".join(map(str, seeds[:4]))
                lines.append(f"    {count:4} {kind}: {reason}  (seeds {some})")
    return "\n".join(lines)
