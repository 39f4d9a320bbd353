"""The training loop, on one page."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn import functional as F

from stiffnet.data.augment import Augmentation
from stiffnet.data.folder import ImageFolder
from stiffnet.data.images import ImageSet, Preparation, part_of
from stiffnet.data.order import epoch_batches, share
from stiffnet.errors import NonFiniteError
from stiffnet.train.average import Average
from stiffnet.train.noise import set_step
from stiffnet.train.ranks import is_sharded, largest
from stiffnet.train.recipe import Recipe
from stiffnet.train.schedule import learning_rate
from stiffnet.train.state import State
from stiffnet.train.stopping import Stop
from stiffnet.train.tally import Outcome, Tally

CHECKED = 20  # steps between looks at loss and signals on devices where looking means waiting
LARGEST_TEST_BATCH = 256


@dataclass
class Trainee:
    """A network in training, and what changes with it."""

    fabric: Fabric
    network: nn.Module  # as it was built
    wrapped: nn.Module  # as Fabric runs it: cast, moved, synchronised
    optimizer: Any  # Fabric's, which knows the gradient scaler
    average: Average | None
    state: State = field(default_factory=State)

    @property
    def judged(self) -> nn.Module:
        """The network that counts: the averaged one where there is one."""
        return self.network if self.average is None else self.average.model


@dataclass(frozen=True)
class Lesson:
    """What to learn from."""

    train: ImageSet | ImageFolder
    test: ImageSet | ImageFolder
    preparation: Preparation
    augmentation: Augmentation
    workers: int = 0


def train_epoch(
    trainee: Trainee,
    lesson: Lesson,
    recipe: Recipe,
    *,
    stop: Stop,
    save_every: int,
    save: Callable[[], object],
    on_step: Callable[[int, Tally], None],
) -> Outcome | None:
    """Do the steps of the current epoch that are not done yet.

    Args:
        trainee: Changed in place, its state too.
        lesson: The data.
        recipe: How.
        stop: Asked after each step.
        save_every: Steps between checkpoints within an epoch; 0 makes none.
        save: Writes a checkpoint.
        on_step: Told the number of images of each step, and the sums so far.

    Returns:
        What the epoch came to, or None if it was stopped.

    Raises:
        NonFiniteError: If a loss is NaN or infinite; no checkpoint holds it.
    """
    fabric, state, epoch = trainee.fabric, trainee.state, len(trainee.state.history)
    batches = epoch_batches(len(lesson.train), recipe.batch_size, seed=recipe.seed, epoch=epoch)
    remaining = batches[state.step - epoch * len(batches) :]
    loader = lesson.train.training_batches(
        lesson.preparation,
        lesson.augmentation,
        [share(batch, fabric.global_rank, fabric.world_size) for batch in remaining],
        seed=recipe.seed,
        epoch=epoch,
        workers=lesson.workers,
    )
    tally = Tally(fabric.device)
    if state.tally and fabric.is_global_zero:  # what was counted before belongs to all ranks
        tally = Tally.from_dict(state.tally, fabric.device)
    trainee.wrapped.train()
    clock = time.perf_counter()

    def keep() -> None:
        nonlocal clock
        _check(tally, state, always=True)
        state.tally = _over_ranks(fabric, tally).to_dict()
        state.seconds += time.perf_counter() - clock
        save()
        clock = time.perf_counter()

    for batch, (images, labels) in zip(remaining, loader, strict=True):
        rate = learning_rate(recipe, state.step, len(batches))
        _step(trainee, recipe, rate, (images, labels), len(batch), tally)
        state.step += 1
        _check(tally, state)
        on_step(len(batch), tally)
        if fabric.device.type == "cpu" or state.step % CHECKED == 0:
            stop.agreed = largest(fabric, stop.number)
        if stop.agreed or (save_every and state.step % save_every == 0):
            keep()
        if stop.agreed:
            return None
    _check(tally, state, always=True)
    state.seconds += time.perf_counter() - clock
    total = _over_ranks(fabric, tally)
    state.tally = total.to_dict()
    return total.outcome()


def _step(
    trainee: Trainee,
    recipe: Recipe,
    rate: float,
    batch: tuple[Tensor, Tensor],
    whole: int,
    tally: Tally,
) -> None:
    """Take one optimizer step on this rank's share of a batch of `whole` images."""
    fabric, step = trainee.fabric, trainee.state.step
    # Dropout and its kin draw from torch's numbers: those are a function of seed and step, too.
    torch.manual_seed(((recipe.seed * 1_000_003 + step) * 4_099 + fabric.global_rank) % 2**63)
    set_step(trainee.network, step)
    for group in trainee.optimizer.param_groups:
        group["lr"] = rate
    images, labels = (part.to(fabric.device) for part in batch)
    if recipe.channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    with fabric.strategy.precision.forward_context():  # else Fabric rounds float64 to float32
        logits = logits_of(trainee.wrapped(images))
    logits = _wide(logits)
    loss = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=recipe.label_smoothing)
    trainee.optimizer.zero_grad(set_to_none=True)
    # Shares may differ in size, and data-parallel training averages over ranks.
    fabric.backward(loss * (fabric.world_size / whole))
    if recipe.clip_norm:
        fabric.clip_gradients(trainee.wrapped, trainee.optimizer, max_norm=recipe.clip_norm)
    trainee.optimizer.step()
    if trainee.average is not None:
        trainee.average.update(trainee.network, step + 1)
    tally.add(loss.detach(), logits.detach(), labels)


def _check(tally: Tally, state: State, *, always: bool = False) -> None:
    """See that the losses are still numbers, as often as it costs nothing."""
    if tally.loss.device.type != "cpu" and not always and state.step % CHECKED:
        return
    if not bool(torch.isfinite(tally.loss)):
        raise NonFiniteError(
            f"The loss is no longer a finite number in epoch {len(state.history) + 1}, at step "
            f"{state.step}. Lower `learning_rate` or set `clip_norm`, and begin anew; the last "
            "checkpoint is from before."
        )


@torch.no_grad()
def evaluate(trainee: Trainee, lesson: Lesson, recipe: Recipe, stop: Stop) -> Outcome | None:
    """Return how the network does on the test set; None if it was stopped.

    Raises:
        NonFiniteError: If the loss is NaN or infinite.
    """
    fabric, precision = trainee.fabric, trainee.fabric.strategy.precision
    size = min(recipe.batch_size, LARGEST_TEST_BATCH)
    batches = lesson.test.batches(lesson.preparation, batch_size=size, workers=lesson.workers)
    tally = Tally(fabric.device)
    trainee.judged.eval()
    together = is_sharded(fabric)  # then every rank is needed for every batch
    rank, ranks = (0, 1) if together else (fabric.global_rank, fabric.world_size)
    for images, labels in part_of(batches, rank, ranks):
        if stop.number and not together:
            break
        images, labels = images.to(fabric.device), labels.to(fabric.device)
        if recipe.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        with precision.forward_context():
            logits = logits_of(trainee.judged(precision.convert_input(images)))
        logits = _wide(logits)
        tally.add(F.cross_entropy(logits, labels, reduction="sum"), logits, labels)
    stop.agreed = largest(fabric, stop.number)
    if stop.agreed:
        return None
    outcome = tally.outcome() if together else _over_ranks(fabric, tally).outcome()
    if not math.isfinite(outcome.loss):
        raise NonFiniteError(
            f"The loss on the test images is {outcome.loss} after epoch "
            f"{len(trainee.state.history) + 1}. Lower `learning_rate` or set `clip_norm`, and "
            "begin anew; the last checkpoint is from before."
        )
    return outcome


def logits_of(output: Any) -> Tensor:
    """Return the main logits where a network also gives others for training."""
    if isinstance(output, tuple):
        output = output[0]
    assert isinstance(output, Tensor)
    return output


def _wide(logits: Tensor) -> Tensor:
    """Return half-precision logits in float32, in which losses can be summed."""
    return logits.float() if logits.dtype.itemsize < 4 else logits


def _over_ranks(fabric: Fabric, tally: Tally) -> Tally:
    """Return the sum of all ranks' tallies; each keeps its own."""
    total = Tally.from_dict(tally.to_dict(), fabric.device)
    if fabric.world_size > 1:
        total.loss = fabric.all_reduce(total.loss, reduce_op="sum")
        total.hits = fabric.all_reduce(total.hits, reduce_op="sum")
    return total
