"""What folding saves at inference, images/s against the plain backbone, and how long it takes.

    python benchmarks/fold.py

For each backbone, in one process, image by image as a deployed network sees them: one network with
every attention module, the folded ASR of every module that folds, and the plain network with its
norms merged; that one also in batches. Each is timed between two plain backbones, and compared with
their mean: a machine's speed drifts, and neighbours drift alike. A pass that is not timed comes
before each, so that nobody's weights lie nearer than another's. Ratios are medians, and images/s
are the plain backbone's, times the ratio.

The time of a fold is compared with what nobody can save: timm's `reparameterize_model`, or, for
gates, copying the network and one pass of it, and the passes of the proof, before and after, in
float32, in float64 and in float64 at another size. All are timed in turns.

Exits with 1 if folded networks are slower than 0.99 of the plain one, the fused one does not reach
what is asked of it, or a fold takes more than three times what it is compared with.
"""

import argparse
import copy
import statistics
from dataclasses import dataclass
from functools import partial

import torch
from neighbours import beside, judged, seconds, warm_seconds
from timm.utils import reparameterize_model
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


FOLDS = {  # name, attention, whether norms are merged
    "repvgg_a0": ("repvgg_a0", None, False),
    "ghostnetv3_100": ("ghostnetv3_100", None, False),
    "mobileone_s1": ("mobileone_s1", None, False),
    "resnet50 with asr:se": ("resnet50", "asr:se", False),
    "resnet50, fused": ("resnet50", None, True),
}
FOLD_ROUNDS = 5
SLOWEST = 3.0


def fold_time(case: str, effort: float) -> bool:
    """Time one fold beside what it is compared with, and return whether it is fast enough."""
    name, attention, fuse = FOLDS[case]
    torch.manual_seed(0)
    model = stiffnet.create_model(name, attention=attention).eval()
    images, other = torch.rand(2, 3, 224, 224), torch.rand(1, 3, 225, 225)
    fold = partial(stiffnet.fold, model, images, fuse=fuse, passes=0)
    pairs = []
    for network in (model, fold().model):
        exact = copy.deepcopy(network).double()
        pairs += [(network, images), (exact, images.double()), (exact, other.double())]
    passes = [partial(network, batch) for network, batch in pairs]
    gates = fuse or attention is not None
    copying = [partial(copy.deepcopy, model), passes[0]]
    work = copying if gates else [partial(reparameterize_model, model)]
    rows = []
    with torch.no_grad():
        for _ in range(max(1, round(FOLD_ROUNDS * effort))):
            rows.append((seconds(fold), sum(map(seconds, work)), sum(map(seconds, passes))))
    took, least, proof = (statistics.median(column) for column in zip(*rows, strict=True))
    ratio = statistics.median(fold / (work + passes) for fold, work, passes in rows)
    rest = statistics.median((fold - passes) / work for fold, work, passes in rows)
    whose = "a copy and a pass" if gates else "timm's"
    print(
        f"{case}: {took:.2f} s, of which {proof:.2f} s for the passes of its proof; the rest is "
        f"{rest:.1f} x {whose} ({least:.2f} s)"
    )
    return judged(f"what {case} is compared with over its fold", 1 / ratio, 1 / SLOWEST)


def main() -> int:
    """Measure both backbones, and the time of folds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--effort", type=float, default=1.0, help="times the usual rounds")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--backbone", default="", help="only the one whose name contains this")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__}, threads: {torch.get_num_threads()}")
    met = [fold_time(case, args.effort) for case in FOLDS if args.backbone in case]
    met += [measured(each, args.effort) for each in BACKBONES if args.backbone in each.name]
    return 0 if all(met) else 1


if __name__ == "__main__":
    raise SystemExit(main())
