"""What augmentation costs: whole batches in memory against torchvision, image by image.

    python benchmarks/data.py

Prints ratios, each of two things done in turn in this one run, because an absolute speed says
little about another machine. Exits with 1 if a ratio misses its target. The images are generated.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from stiffnet.data.augment import Augmentation
from stiffnet.data.images import ImageSet, Preparation
from stiffnet.data.order import epoch_batches

MEAN, STD = (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)
WORKERS = 2


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """Pillow images in memory, varied one by one as torchvision's recipes do."""

    def __init__(self, source: ImageSet, vary: Callable[[Image.Image], torch.Tensor]) -> None:
        self.pictures = [Image.fromarray(image.transpose(1, 2, 0)) for image in source.images]
        self.labels = source.labels.tolist()
        self.vary = vary

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.vary(self.pictures[index]), self.labels[index]


def made_up(count: int, side: int) -> ImageSet:
    """Return noise of CIFAR's shape, or larger."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, 3, side, side), dtype=np.uint8)
    return ImageSet("noise", images, np.arange(count) % 10, tuple("0123456789"))


def speed(batches: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Images a second, from the second batch on: the first pays for starting processes."""
    next(batches)
    images, start = 0, time.perf_counter()
    for _, labels in batches:
        images += len(labels)
    return images / (time.perf_counter() - start)


def compare(
    title: str,
    augmentation: Augmentation,
    theirs: transforms.Compose,
    side: int,
    args: argparse.Namespace,
) -> float:
    """Run epochs of both in turn, and return the median ratio of neighbours in time."""
    source = made_up(args.images, side)
    preparation = Preparation((3, side, side), MEAN, STD)
    loader = DataLoader(
        Pictures(source, theirs), batch_size=args.batch, shuffle=True, num_workers=WORKERS
    )
    rows = []
    for epoch in range(args.repeats):
        indices = epoch_batches(len(source), args.batch, seed=0, epoch=epoch)
        ours = speed(
            source.training_batches(preparation, augmentation, indices, seed=0, epoch=epoch)
        )
        rows.append((ours, speed(iter(loader))))
    first, second = (statistics.median(column) for column in zip(*rows, strict=True))
    ratio = statistics.median(a / b for a, b in rows)
    print(
        f"{title}, {side} x {side}, batches of {args.batch}: {first:,.0f} images/s in this "
        f"process; torchvision with {WORKERS} workers: {second:,.0f}; {ratio:.1f} times faster"
    )
    return ratio


def main() -> int:
    """Run both comparisons; the first has a target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)  # waiting for each other is noise
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__}, threads: {torch.get_num_threads()}")
    last = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    flip = transforms.RandomHorizontalFlip()
    crop = compare(
        "shift in a black frame, flip, normalise",
        Augmentation(crop="pad", padding=4),
        transforms.Compose([transforms.RandomCrop(32, padding=4), flip, *last]),
        32,
        args,
    )
    compare(
        "resized crop, flip, normalise (for information)",
        Augmentation(crop="resized"),
        transforms.Compose([transforms.RandomResizedCrop(64), flip, *last]),
        64,
        args,
    )
    ok = crop >= 5
    print(f"{'met' if ok else 'MISSED'}: at least 5 x torchvision's images/s")
    return 0 if ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
