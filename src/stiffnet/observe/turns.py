"""Timing on a machine whose speed drifts: a pass between two others, compared with their mean.

Neighbours in time drift alike. What is compared should be made in turns, too: where its weights
happen to lie can make one of two equal networks faster.
"""

import itertools
import random
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
    """Time the others, by name, between plain passes, which are taken in turn.

    In each round everybody's turn comes as often as `turns` says, in random order. Returned are the
    seconds of the plain passes, and for each name its speed over that of its two neighbours.
    """
    found: dict[str, list[float]] = {name: [] for name in others}
    next_plain = itertools.cycle(plain)
    times = [timed(next(next_plain))]
    for number in range(rounds):
        order = random.Random(number).sample(turns, len(turns))  # noqa: S311 - an order, no secret
        for name in order:
            own = timed(others[name])
            times.append(timed(next(next_plain)))
            found[name].append((times[-2] + times[-1]) / 2 / own)
    return times, found
