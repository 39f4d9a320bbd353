"""What folding saves at inference: images/s against the plain backbone.

    python benchmarks/fold.py

For each backbone, in one process: one network with every attention module, the folded ASR of every
module that folds, and the plain network with its norms merged. A pass of each is timed between two
passes of the plain backbone, and compared with their mean: a machine's speed drifts, and
neighbours drift alike. Ratios are medians over rounds. The plain network is compared with another
of its kind too, which says how much noise is left. Exits with 1 if folded networks are slower than
0.99 of the plain one, or the fused one does not reach what is asked of it.
"""

import argparse
import random
import statistics
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import stiffnet
from stiffnet.attention import ATTENTION

PAPER = {"ie": 22.56, "srm": 28.64, "cbam": 59.21, "se": 24.42, "dia": 43.82, "spa": 44.45}
"""Drop of images/s in per cent, ResNet-164 on CIFAR-100, on a GPU: Table 1 of the ASR paper."""
FOLDED = 0.99
REPEATED = {"fused": 4, "another": 4}
"""Passes a round of networks whose ratio is judged alone; folded ones are judged together."""


@dataclass(frozen=True)
class Backbone:
    """A network to fold, what it is run on, and what its fused form must reach."""

    name: str
    size: int
    batch: int
    fused: float


BACKBONES = (
    Backbone("resnet164_cifar", 32, 128, 1.2),
    Backbone("torchvision:resnet50", 224, 4, 1.03),
)


def networks(backbone: Backbone, images: Tensor) -> dict[str, nn.Module]:
    """One network with each module, its folded ASR, the fused backbone, and another plain one."""
    plain = stiffnet.create_model(backbone.name).eval()
    made = {"plain": plain, "another": stiffnet.create_model(backbone.name).eval()}
    for entry in ATTENTION:
        made[entry.name] = stiffnet.create_model(backbone.name, attention=entry.name).eval()
        if entry.name != "sge":  # its step size differs between positions: it cannot be constant
            constant = stiffnet.create_model(backbone.name, attention=f"asr:{entry.name}").eval()
            made[f"folded {entry.name}"] = stiffnet.fold(constant, images[:1], passes=0).model
    made["fused"] = stiffnet.fold(plain, images[:1], fuse=True, passes=0).model
    return made


def ratios(made: dict[str, nn.Module], images: Tensor, rounds: int) -> dict[str, list[float]]:
    """Speed of every network in every round, over that of the plain one just before and after."""
    found: dict[str, list[float]] = {name: [] for name in made if name != "plain"}
    turn = [name for name in found for _ in range(REPEATED.get(name, 1))]
    with torch.no_grad():
        before = _seconds(made["plain"], images)
        for number in range(rounds):
            for name in random.Random(number).sample(turn, len(turn)):
                own = _seconds(made[name], images)
                after = _seconds(made["plain"], images)
                found[name].append((before + after) / 2 / own)
                before = after
    return found


def _seconds(model: nn.Module, images: Tensor) -> float:
    start = time.perf_counter()
    model(images)
    return time.perf_counter() - start


def main() -> int:
    """Time all networks of both backbones, and print a table of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--backbone", default="", help="only the one whose name contains this")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__}, threads: {torch.get_num_threads()}")
    met = True
    for backbone in (b for b in BACKBONES if args.backbone in b.name):
        torch.manual_seed(0)
        images = torch.rand(backbone.batch, 3, backbone.size, backbone.size)
        made = networks(backbone, images)
        found = ratios(made, images, args.rounds)
        ratio = {name: statistics.median(values) for name, values in found.items()}
        print(
            f"\n{backbone.name}, {backbone.size} pixels, batch {backbone.batch}, {args.rounds} "
            f"rounds; another plain backbone: {ratio['another']:.3f}"
        )
        print("| module | with it | folded ASR | drop | drop in the paper |")
        print("|---|--:|--:|--:|--:|")
        for entry in ATTENTION:
            own, folded = ratio[entry.name], ratio.get(f"folded {entry.name}")
            paper = PAPER.get(entry.name) if backbone.name == "resnet164_cifar" else None
            print(
                f"| {entry.name} | {own:.3f} | {'-' if folded is None else f'{folded:.3f}'} "
                f"| {100 * (1 - own):.1f} % | {'-' if paper is None else f'{paper:.1f} %'} |"
            )
        middle = statistics.median(
            value for name, values in found.items() if name.startswith("folded") for value in values
        )
        for what, reached, asked in (
            ("folded (all modules)", middle, FOLDED),
            ("fused", ratio["fused"], backbone.fused),
        ):
            met &= reached >= asked
            word = "met" if reached >= asked else "MISSED"
            print(f"{word}: {what} at {reached:.3f} x the plain backbone (asked: {asked})")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
