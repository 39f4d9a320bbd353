"""Two passes in strict turns, and whether a figure was reached; `observe.turns` has the rest."""

import statistics

from stiffnet.observe.turns import (
    Pass as Pass,
    beside as beside,
    seconds as seconds,
    warm_seconds as warm_seconds,
)


def against(ours: Pass, theirs: Pass, turns: int) -> float:
    """Our speed over theirs: both in strict turns, each pass between two of the other."""
    times = [seconds(theirs if turn % 2 else ours) for turn in range(turns + 4)]
    found = []
    for turn in range(3, turns + 3):  # the first ones warm up
        around = (times[turn - 1] + times[turn + 1]) / 2
        found.append(times[turn] / around if turn % 2 else around / times[turn])
    return statistics.median(found)


def judged(what: str, reached: float, asked: float) -> bool:
    """Print whether a figure was reached, and return it."""
    met = reached >= asked
    print(f"{'met' if met else 'MISSED'}: {what} at {reached:.3f} x (asked: {asked})")
    return met
