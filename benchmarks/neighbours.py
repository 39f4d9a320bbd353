"""Timing on a machine whose speed drifts: a pass between two others, compared with their mean.

Neighbours in time drift alike. What is compared is made in turns, too: where its weights happen to
lie can make one of two equal networks faster.
"""

import itertools
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

Pass = Callable[[], object]


def seconds(run: Pass) -> float:
    """Time one pass."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def warm_seconds(run: Pass) -> float:
    """Time the second of two passes."""
    run()
    return seconds(run)


def beside(
    plain: Sequence[Pass],
    others: Mapping[str, Pass],
    turns: Sequence[str],
    rounds: int,
    timed: Callable[[Pass], float] = seconds,
) -> tuple[list[float], dict[str, list[float]]]:
    """Time the others between plain passes.

    Args:
        plain: What is compared with, in turn.
        others: What is compared, by name.
        turns: Whose turn comes how often in a round; shuffled in each.
        rounds: How many.
        timed: What times a pass.

    Returns:
        Seconds of the plain passes, and for each name its speed over that of its two neighbours.
    """
    found: dict[str, list[float]] = {name: [] for name in others}
    next_plain = itertools.cycle(plain)
    times = [timed(next(next_plain))]
    for number in range(rounds):
        for name in random.Random(number).sample(turns, len(turns)):
            own = timed(others[name])
            times.append(timed(next(next_plain)))
            found[name].append((times[-2] + times[-1]) / 2 / own)
    return times, found


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
