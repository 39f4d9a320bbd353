"""The training loop, on one page: SGD under a one-cycle schedule."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stiffnet.data.augment import crop_and_flip
from stiffnet.data.images import ImageSet, Preparation


@dataclass(frozen=True)
class Epoch:
    """What one pass over the training images came to."""

    number: int
    loss: float
    accuracy: float


def fit(
    model: nn.Module,
    data: ImageSet,
    preparation: Preparation,
    *,
    epochs: int,
    batch_size: int = 128,
    learning_rate: float = 0.2,
    weight_decay: float = 5e-4,
    padding: int = 4,
    seed: int = 0,
    on_step: Callable[[], None] = lambda: None,
) -> Iterator[Epoch]:
    """Train `model` in place, and yield after each epoch.

    Args:
        model: Network to train; left in training mode after each epoch.
        data: Training images.
        preparation: What the network expects of its images.
        epochs: Passes over the data; the schedule is laid out over all of them.
        batch_size: Images per step; the last incomplete batch of an epoch is left out.
        learning_rate: The peak of the one-cycle schedule.
        weight_decay: On every parameter.
        padding: Largest shift of the random crop, in pixels; 0 switches crop and flip off.
        seed: Of the order and the augmentation; the caller seeds the weights.
        on_step: Called after each optimizer step.
    """
    steps = len(data) // batch_size
    optimizer = torch.optim.SGD(
        model.parameters(), lr=learning_rate, momentum=0.9, nesterov=True, weight_decay=weight_decay
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, learning_rate, total_steps=epochs * steps, pct_start=0.25
    )
    generator = torch.Generator().manual_seed(seed)
    for number in range(1, epochs + 1):
        model.train()
        total_loss, correct = 0.0, 0
        order = torch.randperm(len(data), generator=generator)
        for chosen in order[: steps * batch_size].split(batch_size):
            images, labels = _batch(data, chosen, preparation, generator, padding)
            logits = model(images)
            loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total_loss += loss.item()
            correct += int((logits.argmax(1) == labels).sum())
            on_step()
        yield Epoch(number, total_loss / steps, correct / (steps * batch_size))


def _batch(
    data: ImageSet,
    chosen: Tensor,
    preparation: Preparation,
    generator: torch.Generator,
    padding: int,
) -> tuple[Tensor, Tensor]:
    index = chosen.numpy()
    images = preparation(torch.from_numpy(data.images[index]))
    if padding:
        images = crop_and_flip(images, generator, padding=padding)
    return images, torch.from_numpy(data.labels[index])


@torch.no_grad()
def accuracy(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Return the share of samples whose largest logit is the label's; the model keeps its mode."""
    training = model.training
    model.eval()
    correct = count = 0
    for images, labels in batches:
        correct += int((model(images).argmax(1) == labels).sum())
        count += len(labels)
    model.train(training)
    return correct / count
