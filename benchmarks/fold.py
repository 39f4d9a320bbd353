"""What folding saves at inference: images/s against the plain backbone.

    python benchmarks/fold.py

For each backbone, in one process: the plain network, one with every attention module, the folded
ASR of every module that folds, and the plain network with its norms merged. Passes of all take
turns in random order, and a ratio is that of the fastest passes: other work on the machine only
ever slows a pass down. The plain network is there twice, which says how far that goes. Exits with 1
if folded networks are slower than 0.99 of the plain one, or the fused one does not reach what is
asked of it.
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


@dataclass(frozen=True)
class Backbone:
    """A network to fold, what it is run on, and what its fused form must reach."""

    name: str
    size: int
    batch: int
    fused: float


BACKBONES = (
    Backbone("resnet164_cifar", 32, 32, 1.2),
    Backbone("torchvision:resnet50", 224, 4, 1.03),
)


def networks(backbone: Backbone, images: Tensor) -> dict[str, nn.Module]:
    """The plain backbone, one with each module, its folded ASR, and the fused backbone."""
    plain = stiffnet.create_model(backbone.name).eval()
    made = {"plain": plain, "plain, again": stiffnet.create_model(backbone.name).eval()}
    for entry in ATTENTION:
        made[entry.name] = stiffnet.create_model(backbone.name, attention=entry.name).eval()
        if entry.name != "sge":  # its step size differs between positions: it cannot be constant
            constant = stiffnet.create_model(backbone.name, attention=f"asr:{entry.name}").eval()
            made[f"folded {entry.name}"] = stiffnet.fold(constant, images[:1], passes=0).model
    made["fused"] = stiffnet.fold(plain, images[:1], fuse=True, passes=0).model
    return made


def speeds(made: dict[str, nn.Module], images: Tensor, rounds: int) -> dict[str, list[float]]:
    """Images/s of every network in every round."""
    order = random.Random(0)
    found: dict[str, list[float]] = {name: [] for name in made}
    with torch.no_grad():
        for turn in range(rounds + 1):
            for name in order.sample(sorted(made), len(made)):
                start = time.perf_counter()
                made[name](images)
                if turn:  # the first round warms up
                    found[name].append(len(images) / (time.perf_counter() - start))
    return found


def main() -> int:
    """Time all networks of both backbones, and print a table of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__}, threads: {torch.get_num_threads()}")
    met = True
    for backbone in BACKBONES:
        torch.manual_seed(0)
        images = torch.rand(backbone.batch, 3, backbone.size, backbone.size)
        made = networks(backbone, images)
        found = speeds(made, images, args.rounds)
        best = {name: max(values) for name, values in found.items()}
        ratio = {name: value / best["plain"] for name, value in best.items()}
        print(
            f"\n{backbone.name}, {backbone.size} pixels, batch {backbone.batch}, {args.rounds} "
            f"rounds; plain: {best['plain']:.1f} images/s, and "
            f"{ratio['plain, again']:.3f} of that when it is timed twice"
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
            value for name, value in ratio.items() if name.startswith("folded")
        )
        for what, reached, asked in (
            ("folded (median of the modules)", middle, FOLDED),
            ("fused", ratio["fused"], backbone.fused),
        ):
            met &= reached >= asked
            word = "met" if reached >= asked else "MISSED"
            print(f"{word}: {what} at {reached:.3f} x the plain backbone (asked: {asked})")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
