"""What stiffness by epoch costs: the time of one measurement as a share of an epoch of training.

    python benchmarks/callbacks.py

Measurements and training steps take turns, and processor time is taken of each, so that neighbours
on the machine count for little. An epoch is its number of training steps times their median.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

import stiffnet
from stiffnet.callbacks import StiffnessMonitor


def seconds(work: Callable[[], Any]) -> float:
    """Processor time of some work."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet20_cifar")
    parser.add_argument("--size", type=int, default=32, help="height and width of the images")
    parser.add_argument("--images", type=int, default=50_000, help="images in an epoch")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = stiffnet.create_model(options.model, num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.rand(options.batch, 3, options.size, options.size)
    labels = torch.arange(options.batch) % 10

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    sizes = (32, 128, 512)
    sample = torch.rand(max(sizes), 3, options.size, options.size)
    monitors = {count: StiffnessMonitor(sample[:count], samples=count) for count in sizes}
    steps: list[float] = []
    measured: dict[int, list[float]] = {count: [] for count in sizes}
    step()
    for epoch in range(options.rounds):
        steps.append(seconds(step))
        for count, monitor in monitors.items():
            measured[count].append(seconds(partial(monitor, model, epoch)))
    epoch_seconds = statistics.median(steps) * options.images / options.batch
    print(f"{options.model}, {options.images:,} images of {options.size} pixels an epoch, batches ")
    print(
        f"of {options.batch}, {torch.get_num_threads()} thread(s): {epoch_seconds:.0f} s an epoch"
    )
    print("sample   a measurement   share of an epoch")
    for count, times in measured.items():
        taken = statistics.median(times)
        print(f"{count:6}   {taken:11.2f} s   {taken / epoch_seconds:17.2%}")


if __name__ == "__main__":
    main()
