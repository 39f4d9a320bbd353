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
import statistics
from collections.abc import Callable
from functools import partial

import timm.layers
import torch
from neighbours import against, beside, judged
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


ASKED = 0.97


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
    compared: dict[str, dict[str, float]] = {}
    speeds: dict[str, float] = {}
    for work in (train, infer):
        kind = work.__name__
        run = {name: partial(work, model, images, labels) for name, model in made.items()}
        plain = run.pop("plain")
        times, found = beside([plain], run, list(run), args.rounds)
        ratios[kind] = {
            "plain": 1.0,
            **{name: statistics.median(own) for name, own in found.items()},
        }
        compared[kind] = {
            name: against(run[name], run[f"timm's {name}"], args.turns) for name in THEIRS
        }
        speeds[kind] = args.batch / statistics.median(times)
    print("| module | parameters | training images/s | ratio | inference images/s | ratio |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, model in made.items():
        count = sum(parameter.numel() for parameter in model.parameters())
        shown = (
            f"{speeds[kind] * ratios[kind][name]:.1f} | {ratios[kind][name]:.2f}" for kind in speeds
        )
        print(f"| {name} | {count:,} | {' | '.join(shown)} |")
    met = [
        judged(f"our {name} over timm's, {kind}", ratio, ASKED)
        for kind, by_name in compared.items()
        for name, ratio in by_name.items()
    ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    raise SystemExit(main())
