"""What constant attention costs in accuracy: a trained network against its frozen forms.

    python benchmarks/constant.py MODEL_FOLDER --data cifar10:DIR

Means are taken over training images; accuracy is over all test images. Beside it, how constant the
step sizes were to begin with (`stiffnet.stripes`).
"""

import argparse

import torch

import stiffnet
from stiffnet.data import open_splits
from stiffnet.network.open import open_model


def main() -> None:
    """Freeze the attention of one network in three ways, and print their accuracy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--data", required=True)
    parser.add_argument("--images", type=int, default=2000, help="training images for the means")
    args = parser.parse_args()
    loaded = open_model(args.folder)
    train, test = open_splits(args.data)
    seen = list(train.batches(loaded.preparation, batch_size=100, limit=args.images))
    report = stiffnet.stripes(loaded.model, seen)
    print(report.to_frame()[["step", "score", "cost"]].to_string(index=False))
    ways: dict[str, dict[str, bool | int]] = {
        "held at its mean": {},
        "and norms recalibrated": {"recalibrate": True},
        "and fine-tuned for an epoch": {"recalibrate": True, "epochs": 1},
    }
    networks = {"as trained": loaded.model}
    for name, options in ways.items():
        networks[name] = stiffnet.freeze_attention(loaded.model, seen, **options)  # type: ignore[arg-type]
    print(f"means over {args.images} training images, accuracy on {len(test)} test images")
    for name, network in networks.items():
        right = 0
        with torch.no_grad():
            for images, labels in test.batches(loaded.preparation, batch_size=250):
                right += int((network(images).argmax(1) == labels).sum())
        print(f"{name}: {right / len(test):.2%}")


if __name__ == "__main__":
    main()
