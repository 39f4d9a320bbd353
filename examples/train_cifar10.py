"""Train a CIFAR-10 network for a few epochs and keep it before and after, ready to measure.

python examples/train_cifar10.py CIFAR10_DIR OUT_DIR --model resnet20_cifar --epochs 8
stiffnet measure OUT_DIR/trained --data cifar10:CIFAR10_DIR
"""

import argparse
import time
from pathlib import Path

import timm
import torch

from stiffnet.backbones import OWN_MODELS
from stiffnet.data.cifar import CLASSES, cifar10
from stiffnet.data.images import Preparation
from stiffnet.network.folder import write_folder
from stiffnet.train.loop import accuracy, fit


def main() -> None:
    """Train, test, and write OUT_DIR/untrained and OUT_DIR/trained."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="resnet20_cifar", choices=OWN_MODELS)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    model = timm.create_model(args.model, num_classes=len(CLASSES))
    config = model.pretrained_cfg
    preparation = Preparation(config["input_size"], config["mean"], config["std"])
    train, test = (cifar10(args.data, split) for split in ("train", "test"))
    held_out = test.batches(preparation, batch_size=500)

    def keep(where: str, epochs: int) -> None:
        score = accuracy(model, held_out)
        facts = {"data": "cifar10", "epochs": epochs, "seed": args.seed, "test_accuracy": score}
        write_folder(
            args.out / where,
            model,
            name=args.model,
            options={"num_classes": len(CLASSES)},
            classes=CLASSES,
            preparation=preparation,
            made_by={"command": "examples/train_cifar10.py", **facts},
        )
        print(f"{where}: test accuracy {score:.4f}", flush=True)

    keep("untrained", 0)
    start = time.perf_counter()
    for epoch in fit(model, train, preparation, epochs=args.epochs, seed=args.seed):
        rate = epoch.number * len(train) / (time.perf_counter() - start)
        print(
            f"epoch {epoch.number}: loss {epoch.loss:.4f}, training accuracy {epoch.accuracy:.4f}, "
            f"test accuracy {accuracy(model, held_out):.4f}, {rate:.0f} images/s",
            flush=True,
        )
    keep("trained", args.epochs)


if __name__ == "__main__":
    main()
