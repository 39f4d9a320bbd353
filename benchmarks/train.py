"""What the training loop costs: images/s against the same training written out in plain PyTorch.

    python benchmarks/train.py

Both train the same network on the same batches, made by the same pipeline; stretches of ours and
of the plain loop take turns in one process, because the machine's own speed drifts. Ours also
counts hits, checks the loss, seeds every step and listens for signals. Exits with 1 below 0.97.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch.nn import functional as F

import stiffnet
from stiffnet.data.augment import Augmentation
from stiffnet.data.images import ImageSet, Preparation
from stiffnet.data.order import epoch_batches
from stiffnet.devices import make_fabric
from stiffnet.network.open import open_model
from stiffnet.train.build import make_trainee
from stiffnet.train.loop import Lesson, train_epoch
from stiffnet.train.recipe import Recipe
from stiffnet.train.schedule import learning_rate
from stiffnet.train.stopping import Stop
from stiffnet.train.tasks import task_of

PREPARATION = Preparation((3, 32, 32), (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
AUGMENTATION = Augmentation(crop="pad", padding=4, flip=True)


def images(count: int) -> ImageSet:
    """Images and labels of the shape of CIFAR-10, without its files."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    return ImageSet("noise", pixels, rng.integers(0, 10, count), tuple("abcdefghij"))


def ours(recipe: Recipe, data: ImageSet) -> Callable[[], None]:
    """Return our training, an epoch of `data` a call."""
    trainee = make_trainee(
        recipe, open_model(recipe.model, num_classes=10), make_fabric(device="cpu")
    )
    lesson = Lesson(task_of(recipe), data, data, PREPARATION, AUGMENTATION)

    def epoch() -> None:
        train_epoch(
            trainee,
            lesson,
            recipe,
            stop=Stop(),
            save_every=0,
            save=lambda: None,
            on_step=lambda images, tally: None,
        )
        trainee.state.history.append({})
        trainee.state.tally = {}

    return epoch


def plain(recipe: Recipe, data: ImageSet) -> Callable[[], None]:
    """Return the same training in a dozen lines of PyTorch, an epoch a call."""
    model = stiffnet.create_model(recipe.model, num_classes=10).train()
    if recipe.channels_last:
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=recipe.learning_rate,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
        nesterov=recipe.nesterov,
    )
    epochs, steps = iter(range(recipe.epochs)), 0

    def epoch() -> None:
        nonlocal steps
        number = next(epochs)
        batches = epoch_batches(len(data), recipe.batch_size, seed=0, epoch=number)
        for inputs, labels in data.training_batches(
            PREPARATION, AUGMENTATION, batches, seed=0, epoch=number
        ):
            optimizer.param_groups[0]["lr"] = learning_rate(recipe, steps, len(batches))
            if recipe.channels_last:
                inputs = inputs.contiguous(memory_format=torch.channels_last)
            loss = F.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1

    return epoch


@contextmanager
def watch(times: list[float]) -> Iterator[None]:
    """Add the seconds that the block took."""
    start = time.perf_counter()
    yield
    times.append(time.perf_counter() - start)


def main() -> int:
    """Train both in turn and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet20_cifar")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=2, help="of one stretch")
    parser.add_argument("--stretches", type=int, default=24)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    count = args.batch * args.steps
    recipe = Recipe(
        model=args.model,
        batch_size=args.batch,
        epochs=args.stretches + 1,
        schedule="onecycle",
        nesterov=True,
        channels_last=True,
    )
    data = images(count)
    rows: dict[str, list[float]] = {"ours": [], "plain": []}
    work = {"ours": ours(recipe, data), "plain": plain(recipe, data)}
    for epoch in work.values():
        epoch()  # warm
    order = random.Random(0)
    for _ in range(args.stretches):
        for name in order.sample(sorted(work), 2):
            with watch(rows[name]):
                work[name]()
    ratio = statistics.median(p / o for o, p in zip(rows["ours"], rows["plain"], strict=True))
    speeds = {name: count / statistics.median(times) for name, times in rows.items()}
    print(f"torch {torch.__version__}, threads: {torch.get_num_threads()}")
    print(
        f"{args.model}, {args.stretches} stretches of {args.steps} batches of {args.batch}: ours "
        f"{speeds['ours']:.0f} images/s, plain PyTorch {speeds['plain']:.0f}; "
        f"{ratio:.3f} x (median of neighbours in time)"
    )
    print(f"{'met' if ratio >= 0.97 else 'MISSED'}: at least 0.97 x the plain loop")
    return 0 if ratio >= 0.97 else 1


if __name__ == "__main__":
    raise SystemExit(main())
