"""What measuring costs: time against plain forward passes, exact TNS against a grid, memory.

    python benchmarks/measure.py
    python benchmarks/measure.py --preload libtcmalloc_minimal.so.4

Prints ratios, each of two things done in turn in this one run, because an absolute time says
little about another machine. Exits with 1 if a ratio misses its target. Passes on one thread are
timed by the processor's time, which leaves out that of other programs. With ``--preload`` it
compares plain passes with and without an allocator, and nothing else.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

import stiffnet

GRID = 200


def paired(
    ours: Callable[[], object], theirs: Callable[[], object], repeats: int
) -> tuple[float, float, float]:
    """Median seconds of both, and the median ratio of neighbours in time."""
    times: list[tuple[float, float]] = []
    for _ in range(repeats):
        pair = []
        for work in (ours, theirs):
            start = time.perf_counter()
            work()
            pair.append(time.perf_counter() - start)
        times.append((pair[0], pair[1]))
    first, second = (statistics.median(column) for column in zip(*times, strict=True))
    return first, second, statistics.median(a / b for a, b in times)


def forward_cost(name: str, batch: int, batches: int) -> float:
    """`measure` against the same passes alone, batch by batch in turn, in one process."""
    torch.manual_seed(0)
    model = stiffnet.create_model(name, num_classes=10).eval()
    images = torch.rand(batch, 3, 32, 32)
    ours: list[float] = []
    theirs: list[float] = []
    order = random.Random(0)  # whichever comes second finds a warmer machine
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter

    def plain() -> None:  # under measure's own no_grad and eval
        start = clock()
        model(images)
        theirs.append(clock() - start)

    def loader() -> Iterator[torch.Tensor]:
        for _ in range(batches):
            plain_first = order.random() < 0.5
            if plain_first:
                plain()
            start = clock()
            yield images
            ours.append(clock() - start)
            if not plain_first:
                plain()

    with torch.no_grad():
        model(images)
    stiffnet.measure(model, loader())
    each = statistics.median(a / b for a, b in zip(ours[1:], theirs[1:], strict=True))
    once = max(0.0, ours[0] / statistics.median(theirs) - each)  # the first batch finds the steps
    total = each + once / batches
    print(
        f"measure, {name}, {batches} batches of {batch}, each beside a plain forward pass: "
        f"{each:.3f} x its time (median), and {once:.2f} passes once to find the steps: "
        f"{total:.3f} x in all"
    )
    return total


def grid_tns(nsi: np.ndarray, stages: np.ndarray) -> np.ndarray:
    """TNS by its definition: count, at every point of a grid, the inputs with a stiff step."""
    means = np.stack([nsi[:, stages == s].mean(1) for s in stages], 1)
    m1 = (np.arange(GRID) + 0.5) / GRID * ((nsi / means).max() - 1)
    m2 = (np.arange(GRID) + 0.5) / GRID * nsi.max()
    total = np.zeros(len(nsi))
    for relative in m1:
        for absolute in m2:
            total += (nsi >= np.maximum(means * (1 + relative), absolute)).any(1)
    area: np.ndarray = total * (m1[1] - m1[0]) * (m2[1] - m2[0])
    return area


def exact_against_grid(samples: int, repeats: int) -> float:
    """Exact TNS against a 200 × 200 grid, on as many values as a ResNet-164 gives."""
    rng = np.random.default_rng(0)
    stages = np.repeat([0, 1, 2], 17)
    nsi = rng.gamma(2.0, 0.1, (samples, len(stages)))
    exact, grid = stiffnet.tns(nsi, stages), grid_tns(nsi, stages)
    error = float(np.abs(grid / exact - 1).max())
    ours, theirs, ratio = paired(
        lambda: stiffnet.tns(nsi, stages), lambda: grid_tns(nsi, stages), repeats
    )
    print(
        f"exact TNS, {samples} inputs, 51 steps: {1e3 * ours:.1f} ms; {GRID} x {GRID} grid: "
        f"{1e3 * theirs:.0f} ms, off by up to {error:.1%}; {1 / ratio:.0f} times faster"
    )
    return 1 / ratio


def peak_memory(images: int) -> float:
    """Peak resident memory in MB of a fresh process that measures so many images."""
    command = [sys.executable, __file__, "--memory-of", str(images)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure_and_weigh(images: int) -> None:
    """Measure generated images, one batch alive at a time, and print the peak memory."""

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        generator = torch.Generator().manual_seed(0)
        for _ in range(images // 100):
            yield (
                torch.rand(100, 3, 32, 32, generator=generator),
                torch.randint(10, (100,), generator=generator),
            )

    torch.manual_seed(0)
    stiffnet.measure(stiffnet.create_model("resnet20_cifar"), batches())
    # The kernel's high-water mark of this program; getrusage would count its parent's memory too.
    [line] = [x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x]
    print(int(line.split()[1]) / 1024)


def passes_on_demand(name: str, batch: int) -> None:
    """Run a plain forward pass for every line that comes in, and print how long it took."""
    torch.manual_seed(0)
    model = stiffnet.create_model(name, num_classes=10).eval()
    images = torch.rand(batch, 3, 32, 32)
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    with torch.no_grad():
        model(images)
        for _ in sys.stdin:
            start = clock()
            model(images)
            print(clock() - start, flush=True)


def preloaded(library: str, name: str, batch: int, batches: int, threads: int) -> None:
    """Passes with an allocator against passes without, in turn, in a process each."""
    command = [sys.executable, __file__, "--on-demand", "--model", name]
    command += ["--batch", str(batch), "--threads", str(threads)]
    runs = [
        subprocess.Popen(
            command,
            env={**os.environ, "LD_PRELOAD": preload},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for preload in ("", library)
    ]

    def one_pass(run: subprocess.Popen[str]) -> float:
        assert run.stdin is not None
        assert run.stdout is not None
        print(file=run.stdin, flush=True)
        return float(run.stdout.readline())

    without, preloading = runs
    try:
        ratios = [one_pass(without) / one_pass(preloading) for _ in range(batches)]
    finally:
        for run in runs:
            run.communicate()  # ends it
    print(
        f"plain passes, {name}, {batches} batches of {batch}, threads: {threads}: with "
        f"{Path(library).name} {statistics.median(ratios):.2f} x as fast as without (median; "
        f"{min(ratios):.2f} to {max(ratios):.2f})"
    )


def main() -> int:
    """Run all three and compare them with their targets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet164_cifar")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--threads", type=int, default=1)  # waiting for each other is noise
    parser.add_argument("--preload", help="allocator to try, a name or path for LD_PRELOAD")
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--on-demand", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory_of:
        measure_and_weigh(args.memory_of)
        return 0

    torch.set_num_threads(args.threads)
    if args.on_demand:
        passes_on_demand(args.model, args.batch)
        return 0
    if args.preload:
        preloaded(args.preload, args.model, args.batch, args.batches, args.threads)
        return 0
    print(f"torch {torch.__version__}, threads: {torch.get_num_threads()}")
    cost = forward_cost(args.model, args.batch, args.batches)
    speed = exact_against_grid(500, 3)
    few, many = peak_memory(1_000), peak_memory(10_000)
    print(f"peak memory: {few:.0f} MB for 1,000 images, {many:.0f} MB for 10,000")
    met = {
        "measure at most 1.05 x the passes": cost <= 1.05,
        "exact TNS at least 100 x faster": speed >= 100,
        "memory within 5 %": abs(many / few - 1) <= 0.05,
    }
    for target, ok in met.items():
        print(f"{'met' if ok else 'MISSED'}: {target}")
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
