"""What a report costs: the page and the terminal of as many images and steps as are kept at most.

    python benchmarks/report.py

Prints seconds of this machine, and for scale the time of one sort of as many numbers. Exits with 1
if the report takes longer than it may.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console

from stiffnet.report.page import page
from stiffnet.results.stiffness import Samples, StiffnessReport
from stiffnet.stiffness.summary import StiffnessSummary, binned, quantiles
from stiffnet.stiffness.total import stage_tns, tns
from stiffnet.trajectory.step import Site, Step

STAGES = 4
MOST = 2.0  # seconds for 10,000 images and 24 steps


def made_up(images: int, steps: int) -> StiffnessReport:
    """A report of seeded numbers: stages of steps, labels, losses that go with the last step."""
    rng = np.random.default_rng(0)
    stage = np.repeat(np.arange(STAGES), steps // STAGES)
    nsi = rng.gamma(4.0, 0.1, (images, len(stage))) * rng.uniform(0.5, 2.0, len(stage))
    site = Site("block", "add", 0, 0, 1, 4)
    counted = [bool(i and stage[i] == stage[i - 1]) for i in range(len(stage))]
    names = [f"layer{s + 1}.{i}" for i, s in enumerate(stage)]
    found = [
        Step(name, int(s), (64, 8, 8), counts, counts, (), (), site, site, site)
        for name, s, counts in zip(names, stage, counted, strict=True)
    ]
    values, own = nsi[:, counted], stage[counted].tolist()
    totals, each = tns(values, own), stage_tns(values, own)
    low, high = nsi.min(axis=0), nsi.max(axis=0)
    root = np.sqrt(images)
    summary = StiffnessSummary(
        images, nsi.mean(axis=0), nsi.std(axis=0), low, high, nsi.mean(axis=0), nsi.std(axis=0),
        quantiles(binned(nsi), low, high), sum(counted), sum(counted), tuple(range(STAGES)),
        float(totals.mean()), float(totals.std() / root), float(totals.mean()),
        float(totals.std() / root), each.mean(axis=0), each.std(axis=0) / root,
    )  # fmt: skip
    loss = rng.exponential(size=images) + nsi[:, -1]
    label = rng.integers(0, 10, images)
    kept = Samples(np.arange(images), nsi, label, loss, loss < 1.0)
    return StiffnessReport(tuple(found), summary, kept, 0.5, facts={"model": "made up"})


def seconds(work: Callable[[], object], repeats: int) -> float:
    """The least processor time of a few tries: other programs only ever add to it."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def main() -> int:
    """Draw a fresh report for a terminal and for a page, and compare with the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    text = made_up(args.images, args.steps).to_json()
    console = Console(quiet=True)

    def draw() -> None:
        report = made_up(args.images, args.steps)  # a fresh one: a view is counted once
        console.print(report)
        page([report])

    page([made_up(20, args.steps)])  # what is read and compiled once in a program
    making = seconds(lambda: made_up(args.images, args.steps), args.repeats)
    taken = seconds(draw, args.repeats) - making
    numbers = np.random.default_rng(0).random(args.images * args.steps)
    scale = seconds(lambda: np.sort(numbers), args.repeats)
    print(
        f"report of {args.images:,} images and {args.steps} steps ({len(text) / 1e6:.1f} MB), "
        f"terminal and page: {taken:.2f} s, {taken / scale:.0f} sorts of its numbers"
    )
    met = taken <= MOST
    print(f"{'met' if met else 'MISSED'}: at most {MOST:.0f} s")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
