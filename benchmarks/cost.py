"""What the papers' ImageNet recipes would cost: operations counted, hours estimated.

    python benchmarks/cost.py

Counts the floating-point operations of one forward pass (torch's own counter, on the meta device),
takes three times that for a training step, and divides by a rate that a GPU is assumed to hold.
The counts are exact; the hours are as good as the assumption, which is printed.
"""

import argparse

import timm
import torch
from torch.utils.flop_counter import FlopCounterMode

import stiffnet.network.own_models  # noqa: F401  # timm knows our names from here on
from stiffnet.train.recipes import RECIPES

IMAGES = 1_281_167  # of ImageNet-1k's training set
RANKS = (1, 8, 64)


def forward_operations(name: str, size: int) -> int:
    """Floating-point operations of one image's forward pass; a multiply-add counts two."""
    with torch.device("meta"):
        model = timm.create_model(name).eval()
        image = torch.empty(1, 3, size, size)
    with FlopCounterMode(display=False) as counter:
        model(image)
    return int(counter.get_total_flops())


def main() -> None:
    """Print one row for each recipe that is for a folder of photographs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--teraflops", type=float, default=60.0, help="held by one GPU")
    args = parser.parse_args()
    print(f"assumed: {args.teraflops:g} TFLOP/s held by each GPU, no loss from adding GPUs")
    heads = " | ".join(f"{ranks} GPU{'s' if ranks > 1 else ''}" for ranks in RANKS)
    print(f"| recipe | network | GFLOP/image | epochs | EFLOP | {heads} |")
    print("|---|---|--:|--:|--:|" + "--:|" * len(RANKS))
    for entry in RECIPES:
        recipe = entry.value
        if recipe.data != "folder":
            continue
        forward = forward_operations(recipe.model, recipe.image_size or 224)
        total = 3 * forward * IMAGES * recipe.epochs
        hours = [total / (args.teraflops * 1e12 * ranks) / 3600 for ranks in RANKS]
        shown = " | ".join(f"{hour:.1f} h" for hour in hours)
        print(
            f"| {entry.name} | {recipe.model} | {forward / 1e9:.1f} | {recipe.epochs} | "
            f"{total / 1e18:.2f} | {shown} |"
        )


if __name__ == "__main__":
    main()
