"""What each attention module costs: images/s in training and inference against the plain backbone.

    python benchmarks/attention.py

Every network is the same backbone with another module attached, and timm's own SE, ECA and CBAM
are attached beside ours. A pass of each is timed between two passes of the plain backbone, and
compared with their mean: a machine's speed drifts, and neighbours drift alike. Ratios are medians
over rounds, and images/s are the plain backbone's, times the ratio. Ours and timm's are compared
with each other in the same way and more often. Exits with 1 if ours is slower than timm's, below
0.97 of its images/s, where both exist.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable

import timm.layers
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import stiffnet
from stiffnet.attention import ATTENTION


class Timms(nn.Module):
    """One of timm's modules, made as `attach` makes ours."""

    def __init__(self, channels: int, *, layer: type[nn.Module], **options: float) -> None:
        super().__init__()
        self.layer = layer(channels, **options)

    def forward(self, rate: Tensor, state: Tensor | None = None) -> Tensor:
        """Scale the rate."""
        scaled: Tensor = self.layer(rate)
        return scaled


def timms(layer: type[nn.Module], **options: float) -> Callable[..., nn.Module]:
    """Return a maker for `attach`."""
    return lambda channels, **_: Timms(channels, layer=layer, **options)


THEIRS: dict[str, Callable[..., nn.Module]] = {
    "se": timms(timm.layers.SEModule, rd_ratio=1 / 16, rd_divisor=1),
    "eca": timms(timm.layers.EcaModule),
    "cbam": timms(timm.layers.get_attn("cbam"), rd_ratio=1 / 16, rd_divisor=1),
}


def networks(backbone: str) -> dict[str, nn.Module]:
    """The plain backbone, and one with each module."""
    made: dict[str, nn.Module] = {"plain": stiffnet.create_model(backbone, num_classes=10)}
    for entry in ATTENTION:
        made[entry.name] = stiffnet.create_model(backbone, num_classes=10, attention=entry.name)
    for name, maker in THEIRS.items():
        model = stiffnet.create_model(backbone, num_classes=10)
        made[f"timm's {name}"] = stiffnet.attach(model, maker)
    return made


def infer(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    """One pass in evaluation."""
    model.eval()
    with torch.no_grad():
        model(images)


def train(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    """One pass forward and backward; the optimizer is the same for all, so it is left out."""
    model.train()
    model.zero_grad()
    F.cross_entropy(model(images), labels).backward()


Work = Callable[[nn.Module, Tensor, Tensor], None]


def measured(
    made: dict[str, nn.Module], work: Work, images: Tensor, labels: Tensor, rounds: int
) -> tuple[list[float], dict[str, list[float]]]:
    """Seconds of the plain network, and every other's speed over that of its plain neighbours."""

    def seconds(name: str) -> float:
        start = time.perf_counter()
        work(made[name], images, labels)
        return time.perf_counter() - start

    found: dict[str, list[float]] = {name: [] for name in made if name != "plain"}
    turn = list(found)
    plain = [seconds("plain"), seconds("plain")]
    for number in range(rounds):
        for name in random.Random(number).sample(turn, len(turn)):
            own = seconds(name)
            plain.append(seconds("plain"))
            found[name].append((plain[-2] + plain[-1]) / 2 / own)
    return plain, {"plain": [1.0], **found}


def against(
    ours: nn.Module, theirs: nn.Module, work: Work, images: Tensor, labels: Tensor, turns: int
) -> float:
    """Our speed over theirs: passes of both in turns, each between two of the other."""
    times: list[float] = []
    for turn in range(turns + 4):  # the first two of each warm up
        start = time.perf_counter()
        work(theirs if turn % 2 else ours, images, labels)
        times.append(time.perf_counter() - start)
    found = []
    for turn in range(3, turns + 3):
        beside = (times[turn - 1] + times[turn + 1]) / 2
        found.append(times[turn] / beside if turn % 2 else beside / times[turn])
    return statistics.median(found)


def main() -> int:
    """Time all networks in turn, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backbone", default="resnet164_cifar")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=61, help="passes that compare with timm's")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    images, labels = torch.rand(args.batch, 3, 32, 32), torch.randint(10, (args.batch,))
    made = networks(args.backbone)
    print(f"torch {torch.__version__}, threads: {torch.get_num_threads()}")
    print(
        f"{args.backbone}, batch {args.batch}, {args.rounds} rounds, "
        f"{args.turns} turns; 1.00 is the plain backbone"
    )
    ratios: dict[str, dict[str, float]] = {}
    speeds: dict[str, float] = {}
    for work in (train, infer):
        times, found = measured(made, work, images, labels, args.rounds)
        ratios[work.__name__] = {name: statistics.median(own) for name, own in found.items()}
        ratios[f"{work.__name__} against timm"] = {
            name: against(made[name], made[f"timm's {name}"], work, images, labels, args.turns)
            for name in THEIRS
        }
        speeds[work.__name__] = args.batch / statistics.median(times)
    print("| module | parameters | training images/s | ratio | inference images/s | ratio |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, model in made.items():
        count = sum(parameter.numel() for parameter in model.parameters())
        shown = (
            f"{speeds[kind] * ratios[kind][name]:.1f} | {ratios[kind][name]:.2f}" for kind in speeds
        )
        print(f"| {name} | {count:,} | {' | '.join(shown)} |")
    met = True
    for kind in ("train", "infer"):
        for name, ratio in ratios[f"{kind} against timm"].items():
            met &= ratio >= 0.97
            word = "met" if ratio >= 0.97 else "MISSED"
            print(f"{word}: our {name} at {ratio:.3f} x timm's images/s, {kind}")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
