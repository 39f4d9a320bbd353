"""The training loop, on one page."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from stiffnet.data import Data
from stiffnet.data.augment import Augmentation
from stiffnet.data.images import Preparation
from stiffnet.data.order import epoch_batches, part_of, share
from stiffnet.errors import NonFiniteError, RecipeError
from stiffnet.train.average import Average
from stiffnet.train.frozen import hold_norms
from stiffnet.train.noise import set_step
from stiffnet.train.ranks import first_decides, in_order, is_sharded, largest
from stiffnet.train.recipe import Recipe
from stiffnet.train.schedule import learning_rate
from stiffnet.train.state import State
from stiffnet.train.stopping import Stop
from stiffnet.train.tally import Tally
from stiffnet.train.tasks.base import Network, Task

CHECKED = 20  # steps between looks at loss and signals on devices where looking means waiting
LARGEST_TEST_BATCH = 256

Sums = dict[str, int | float]  # of a pass, as a task's columns are made of
Columns = dict[str, float | None]  # None where a number does not exist


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
    """What to learn, and from what."""

    task: Task
    train: Data
    test: Data
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
) -> Sums | None:
    """Do the steps of the current epoch that are not done yet; None if it was stopped.

    The trainee is changed in place, its state too. `save` writes a checkpoint, also after every
    `save_every` steps unless that is 0. `on_step` is told the number of images of each step, and
    the sums so far; the sums of the epoch are returned.

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
    tally = Tally(lesson.task, fabric.device)
    if state.tally and fabric.is_global_zero:  # what was counted before belongs to all ranks
        tally.fill(state.tally)
    trainee.wrapped.train()
    if recipe.frozen_norms:
        hold_norms(trainee.network)
    clock = time.perf_counter()

    def note() -> None:
        _check(tally, state, always=True)
        state.seconds += time.perf_counter() - clock
        state.tally = tally.over_ranks(fabric).to_dict()

    for batch, samples in zip(remaining, loader, strict=True):
        rate = learning_rate(recipe, state.step, len(batches))
        _step(trainee, lesson.task, recipe, rate, samples, len(batch), tally)
        state.step += 1
        _check(tally, state)
        on_step(len(batch), tally)
        if fabric.device.type == "cpu" or state.step % CHECKED == 0:
            stop.agreed = largest(fabric, stop.number)
        if stop.agreed or (save_every and state.step % save_every == 0):
            note()
            save()
            clock = time.perf_counter()
        if stop.agreed:
            return None
    note()
    return state.tally


def _step(
    trainee: Trainee, task: Task, recipe: Recipe, rate: float, batch: Any, whole: int, tally: Tally
) -> None:
    """Take one optimizer step on this rank's share of a batch of `whole` samples."""
    fabric, step = trainee.fabric, trainee.state.step
    # Dropout and its kin draw from torch's numbers: those are a function of seed and step, too.
    torch.manual_seed(((recipe.seed * 1_000_003 + step) * 4_099 + fabric.global_rank) % 2**63)
    set_step(trainee.network, step)
    for group in trainee.optimizer.param_groups:
        group["lr"] = rate * group["lr_scale"]
    network = _as_the_task_sees_it(trainee.wrapped, fabric)
    try:
        judged = task.judge(network, _placed(batch, fabric, recipe), training=True)
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise RecipeError(
            "A batch norm gets a single number for each channel, as a rank's share of a batch of "
            f"{whole} images is one image. Raise `batch_size`."
        ) from error
    trainee.optimizer.zero_grad(set_to_none=True)
    # Shares may differ in size, and data-parallel training averages over ranks.
    fabric.backward(judged.loss * (fabric.world_size / whole))
    if recipe.clip_norm:
        fabric.clip_gradients(trainee.wrapped, trainee.optimizer, max_norm=recipe.clip_norm)
    trainee.optimizer.step()
    if trainee.average is not None:
        trainee.average.update(trainee.network, step + 1)
    tally.add(judged)


def _check(tally: Tally, state: State, *, always: bool = False) -> None:
    """See that the losses are still numbers, as often as it costs nothing."""
    if tally.loss.device.type != "cpu" and not always and state.step % CHECKED:
        return
    if not bool(torch.isfinite(tally.loss)):
        raise NonFiniteError(
            f"The loss is no longer a finite number in epoch {len(state.history) + 1}, at step "
            f"{state.step}. Lower `learning_rate` or set `clip_norm`, and start over; the last "
            "checkpoint is from before."
        )


@torch.no_grad()
def evaluate(trainee: Trainee, lesson: Lesson, recipe: Recipe, stop: Stop) -> Columns | None:
    """Return the numbers of a pass over the test set; None if it was stopped."""
    fabric, task = trainee.fabric, lesson.task
    size = min(recipe.batch_size, LARGEST_TEST_BATCH)
    batches = lesson.test.batches(lesson.preparation, batch_size=size, workers=lesson.workers)
    tally, kept = Tally(task, fabric.device), []
    network = _as_the_task_sees_it(trainee.judged.eval(), fabric)
    together = is_sharded(fabric)  # then every rank is needed for every batch
    rank, ranks = (0, 1) if together else (fabric.global_rank, fabric.world_size)
    for batch in part_of(batches, rank, ranks):
        if stop.number and not together:
            break
        judged = task.judge(network, _placed(batch, fabric, recipe), training=False)
        tally.add(judged)
        kept.append(judged.kept)
    stop.agreed = largest(fabric, stop.number)
    if stop.agreed:
        return None
    if not together:
        tally, kept = tally.over_ranks(fabric), in_order(fabric, kept)
    return first_decides(fabric, lambda: task.tested(tally.to_dict(), kept))


def _placed(batch: Any, fabric: Fabric, recipe: Recipe) -> Any:
    """Move the tensors of a batch, however nested, to the device and into the wanted layout."""
    batch = fabric.to_device(batch)
    if recipe.channels_last:
        batch = pytree.tree_map_only(Tensor, _channels_last, batch)
    return batch


def _channels_last(tensor: Tensor) -> Tensor:
    images = tensor.ndim == 4
    return tensor.contiguous(memory_format=torch.channels_last) if images else tensor


def _as_the_task_sees_it(network: nn.Module, fabric: Fabric) -> Network:
    """Return the network in the precision of the run, its output wide enough to sum losses of."""
    precision = fabric.strategy.precision

    def run(*inputs: Any) -> Any:
        with precision.forward_context():  # else Fabric rounds float64 to float32
            output = network(*precision.convert_input(inputs))
        return pytree.tree_map_only(Tensor, _wide, output)

    return run


def _wide(tensor: Tensor) -> Tensor:
    """Return half-precision numbers in float32."""
    return tensor.float() if tensor.is_floating_point() and tensor.dtype.itemsize < 4 else tensor
