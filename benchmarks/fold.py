"""What folding saves at inference: images/s against the plain backbone.

    python benchmarks/fold.py

For each backbone, in one process, image by image as a deployed network sees them: one network with
every attention module, the folded ASR of every module that folds, and the plain network with its
norms merged; that one also in batches. Each is timed between two plain backbones, and compared with
their mean: a machine's speed drifts, and neighbours drift alike. A pass that is not timed comes
before each, so that nobody's weights lie nearer than another's. Ratios are medians, and images/s
are the plain backbone's, times the ratio. Exits with 1 if folded networks are slower than 0.99 of
the plain one, or the fused one does not reach what is asked of it.
"""

import argparse
import statistics
from dataclasses import dataclass
from functools import partial

import torch
from neighbours import beside, judged, warm_seconds
from torch import Tensor, nn

import stiffnet
from stiffnet.attention import ATTENTION

PAPER = {"ie": 22.56, "srm": 28.64, "cbam": 59.21, "se": 24.42, "dia": 43.82, "spa": 44.45}
"""Drop of images/s in per cent, ResNet-164 on CIFAR-100, on a GPU: Table 1 of the ASR paper."""
FOLDED = 0.99
FUSED_TURNS = 4
"""A round: its ratio is judged alone, and those of folded networks together."""


@dataclass(frozen=True)
class Backbone:
    """A network to fold, what it is run on, and what its fused form must reach."""

    name: str
    size: int
    rounds: int
    batches: tuple[int, ...]
    fused: float


BACKBONES = (
    Backbone("resnet164_cifar", 32, 30, (4, 16, 64), 1.2),
    Backbone("torchvision:resnet50", 224, 10, (4,), 1.03),
)


def networks(backbone: Backbone, image: Tensor) -> tuple[list[nn.Module], dict[str, nn.Module]]:
    """Plain networks, and one with each module, its folded ASR, and the fused backbone.

    They are made in turns: folded networks are slower than plain ones that were made before them.
    """
    plain, made = [], {}
    for entry in ATTENTION:
        made[entry.name] = stiffnet.create_model(backbone.name, attention=entry.name).eval()
        plain.append(stiffnet.create_model(backbone.name).eval())
        if entry.name != "sge":  # its step size differs between positions: it cannot be constant
            constant = stiffnet.create_model(backbone.name, attention=f"asr:{entry.name}").eval()
            made[f"folded {entry.name}"] = stiffnet.fold(constant, image, passes=0).model
    made["fused"] = stiffnet.fold(plain[0], image, fuse=True, passes=0).model
    return plain, made


def ratios(
    plain: list[nn.Module], made: dict[str, nn.Module], images: Tensor, rounds: int
) -> tuple[list[float], dict[str, list[float]]]:
    """Seconds of the plain networks in turn, and the others' speed over their plain neighbours'."""
    turns = [name for name in made for _ in range(FUSED_TURNS if name == "fused" else 1)]
    run = {name: partial(model, images) for name, model in made.items()}
    with torch.no_grad():
        return beside([partial(m, images) for m in plain], run, turns, rounds, warm_seconds)


def measured(backbone: Backbone, effort: float) -> bool:
    """Time all networks of one backbone, print a table, and return whether they are fast enough."""
    torch.manual_seed(0)
    image = torch.rand(1, 3, backbone.size, backbone.size)
    plain, made = networks(backbone, image)
    rounds = max(1, round(backbone.rounds * effort))
    times, found = ratios(plain, made, image, rounds)
    speed = 1 / statistics.median(times)
    each = [1 / statistics.median(times[i :: len(plain)]) for i in range(len(plain))]
    ratio = {name: statistics.median(values) for name, values in found.items()}
    print(
        f"\n{backbone.name}, {backbone.size} pixels, one image at a time, {rounds} rounds\n"
        f"Plain: {speed:.2f} images/s, single ones of {len(plain)} at {min(each) / speed:.3f} to "
        f"{max(each) / speed:.3f} of it"
    )
    print("| module | images/s | ratio | folded ASR, images/s | ratio | drop | in the paper |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for entry in ATTENTION:
        own, folded = ratio[entry.name], ratio.get(f"folded {entry.name}")
        paper = PAPER.get(entry.name) if backbone.name == "resnet164_cifar" else None
        print(
            f"| {entry.name} | {speed * own:.2f} | {own:.3f} "
            f"| {'|' if folded is None else f'{speed * folded:.2f} | {folded:.3f}'} "
            f"| {100 * (1 - own):.1f} % | {'' if paper is None else f'{paper:.1f} %'} |"
        )
    middle = statistics.median(
        value for name, values in found.items() if name.startswith("folded") for value in values
    )
    print(f"fused: {speed * ratio['fused']:.2f} images/s")
    met = [
        judged("folded (all modules) over plain", middle, FOLDED),
        judged("fused over plain", ratio["fused"], backbone.fused),
    ]
    for batch in backbone.batches:
        images = torch.rand(batch, 3, backbone.size, backbone.size)
        _, found = ratios(plain, {"fused": made["fused"]}, images, max(4, rounds // batch))
        print(f"fused over plain in batches of {batch}: {statistics.median(found['fused']):.3f} x")
    return all(met)


def main() -> int:
    """Measure both backbones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--effort", type=float, default=1.0, help="times the usual rounds")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--backbone", default="", help="only the one whose name contains this")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__}, threads: {torch.get_num_threads()}")
    met = [measured(each, args.effort) for each in BACKBONES if args.backbone in each.name]
    return 0 if all(met) else 1


if __name__ == "__main__":
    raise SystemExit(main())
