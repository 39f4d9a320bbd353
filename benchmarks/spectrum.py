"""What spectra cost: `reduced` against `dense`, and every block of a CIFAR ResNet-50.

    python benchmarks/spectrum.py               # about an hour on two cores
    python benchmarks/spectrum.py --only ratio  # the first part alone; also: exact, ends
    python benchmarks/spectrum.py --large       # adds the first bottleneck, exactly

Prints a ratio of two things done in this one run, because an absolute time says little about
another machine, and then the time and the peak memory of each spectrum. Exits with 1 if the ratio
misses its target, or if `reduced` and `dense` differ.
"""

import argparse
import sys

import numpy as np
import torch
from torch import nn

import stiffnet
from stiffnet.errors import ShapeChangesError
from stiffnet.results.spectrum import Spectrum
from stiffnet.trajectory.steps import Step

TARGET = 20.0  # times as fast
CLOSE = 1e-8  # of the largest |λ|
NETWORK = "resnet50_small"
CAP = 8 << 30


class Bottleneck(nn.Module):
    """A residual block with a quarter of its channels inside."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inside = channels // 4
        self.branch = nn.Sequential(
            nn.Conv2d(channels, inside, 1), nn.BatchNorm2d(inside), nn.ReLU(),
            nn.Conv2d(inside, inside, 3, padding=1), nn.BatchNorm2d(inside), nn.ReLU(),
            nn.Conv2d(inside, channels, 1), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the branch."""
        added: torch.Tensor = self.branch(x)
        return x + added


def told(found: Spectrum) -> str:
    """Return a line on a spectrum."""
    memory = "–" if found.peak_bytes is None else f"{found.peak_bytes / 2**30:.2f} GiB"
    size = int(np.prod(found.shape))
    ends = f"Re λ {found.min_real:.4g} to {found.max_real:.4g}" if found.count else (
        f"shape changes, ‖J‖₂ {found.norm:.4g}"
    )  # fmt: skip
    return (
        f"{found.step:<10} {found.method:<8} n {size:>7,} k {found.inner:>6,}  {ends:<30} "
        f"{found.seconds:>8.1f} s  peak {memory}"
    )


def ratio() -> bool:
    """Compare `reduced` with `dense` where n = 8,192."""
    torch.manual_seed(0)
    stem = nn.Conv2d(3, 128, 3, padding=1)
    model = nn.Sequential(stem, Bottleneck(128)).eval()
    image = torch.rand(1, 3, 8, 8)
    reduced = stiffnet.spectrum(model, "1", image, method="reduced", cap=CAP)
    print(told(reduced), flush=True)
    dense = stiffnet.spectrum(model, "1", image, method="dense", cap=CAP)
    print(told(dense), flush=True)
    assert dense.radius is not None
    near = CLOSE * dense.radius
    pairs = (
        (reduced.max_real, dense.max_real),
        (reduced.min_real, dense.min_real),
        (reduced.radius, dense.radius),
    )
    off = max(abs(a - b) for a, b in pairs if a is not None and b is not None) / dense.radius
    counts = [int((np.abs(found.eigenvalues) > near).sum()) for found in (reduced, dense)]
    equal = off <= CLOSE and counts[0] == counts[1]
    times = dense.seconds / reduced.seconds
    print(
        f"reduced is {times:.1f} times as fast as dense (wanted: {TARGET:g}); extremes differ by "
        f"{off:.0e} of ρ, {counts[0]:,} and {counts[1]:,} eigenvalues are not zero\n"
    )
    return equal and times >= TARGET


def network() -> tuple[nn.Module, torch.Tensor, list[Step]]:
    """Return a CIFAR ResNet-50 with random weights, an image and the steps."""
    torch.manual_seed(0)
    model = stiffnet.create_model(NETWORK, num_classes=10, seed=0).eval()
    image = torch.rand(1, 3, 32, 32)
    return model, image, stiffnet.steps(model, image)


def exact(*stages: str) -> None:
    """Print every block of some stages, by `reduced` where the shape stays."""
    model, image, steps = network()
    for step in steps:
        if step.name.startswith(stages):
            try:
                found = stiffnet.spectrum(model, step, image, method="reduced", cap=CAP)
            except ShapeChangesError:
                found = stiffnet.spectrum(model, step, image, method="krylov")
            print(told(found), flush=True)
    print()


def ends() -> None:
    """Print the extremes of every block, by `krylov`, also where n = 262,144."""
    model, image, steps = network()
    for step in steps:
        print(told(stiffnet.spectrum(model, step, image, method="krylov")), flush=True)
    wide = torch.rand(1, 3, 64, 64)  # twice as wide and high: 256 maps of 32 × 32
    first = next(step for step in steps if step.identity)
    print(told(stiffnet.spectrum(model, first.name, wide, method="krylov")), "\n", flush=True)


def large() -> None:
    """Print the first bottleneck whose shape stays, exactly."""
    model, image, steps = network()
    first = next(step for step in steps if step.identity)
    print(told(stiffnet.spectrum(model, first, image, method="reduced", cap=CAP)), flush=True)


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", choices=("ratio", "exact", "ends"))
    parser.add_argument("--large", action="store_true")
    given = parser.parse_args()
    fine = True
    if given.only in (None, "ratio"):
        fine = ratio()
    if given.only in (None, "exact"):
        exact("layer3", "layer4")
    if given.only in (None, "ends"):
        ends()
    if given.large:
        large()
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
