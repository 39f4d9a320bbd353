"""One training run: started or resumed, followed epoch by epoch, brought to its end."""

import math
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

from stiffnet.data.copies import remarks_on_copies
from stiffnet.data.folder import ImageFolder
from stiffnet.data.order import part_of
from stiffnet.devices import make_fabric
from stiffnet.errors import CheckpointError, NonFiniteError, RecipeError
from stiffnet.nested import mapped
from stiffnet.network.stem import stem_warning
from stiffnet.network.step_sizes import choosers, step_sizes, write_values
from stiffnet.observe.measure import measure
from stiffnet.train.build import make_trainee, open_subject, without_bad_images
from stiffnet.train.checkpoint import (
    LOG,
    About,
    Checkpoint,
    Tensors,
    checkpoint_name,
    discard_all,
    read_checkpoint,
    write_checkpoint,
    write_model,
)
from stiffnet.train.log import log_text, restore_log, write_log
from stiffnet.train.loop import (
    LARGEST_TEST_BATCH,
    Columns,
    Lesson,
    Sums,
    Trainee,
    evaluate,
    train_epoch,
)
from stiffnet.train.ranks import first_decides, in_company, is_sharded
from stiffnet.train.recipe import Recipe
from stiffnet.train.run_folder import RunFolder
from stiffnet.train.schedule import learning_rate
from stiffnet.train.snapshot import take
from stiffnet.train.start import begin, enter, go_on, look, same_on_all_ranks
from stiffnet.train.state import State
from stiffnet.train.stopping import Stop, Stopped, listening
from stiffnet.train.tally import Tally
from stiffnet.train.tasks import task_of
from stiffnet.train.tasks.base import Task


@dataclass(frozen=True)
class Machinery:
    """Where and how to compute; none of it changes the result beyond rounding."""

    device: str = "auto"
    devices: int = 1
    nodes: int = 1
    strategy: str = "auto"
    workers: int = 0
    save_every: int = 0  # steps; after each epoch there is a checkpoint in any case
    tns: int = 0  # test images to measure after each epoch
    attention_values: int = 0  # test images to keep step sizes of after each epoch


class Audience:
    """Whoever follows a run; this one does not listen."""

    def begin(self, images: int, done: int) -> None:
        """Hear how many images there are to go through, and how many are behind."""

    def step(self, images: int, tally: Tally) -> None:
        """Hear of one optimizer step."""

    def epoch(self, row: dict[str, Any]) -> None:
        """Hear of one epoch, as the log tells it."""

    def note(self, text: str) -> None:
        """Hear of something unusual."""


NOBODY = Audience()
HERE = Machinery()


@dataclass(frozen=True)
class Result:
    """A finished run."""

    folder: RunFolder
    history: list[dict[str, Any]]  # a row for each epoch; the last one counts
    rank: int  # of this process
    task: Task

    @property
    def best(self) -> dict[str, Any]:
        """The row of the best epoch: chosen on the test set, so it is not the one that counts."""
        return reduce(
            lambda best, row: row if self.task.is_better(row, best) else best, self.history
        )

    @property
    def conclusion(self) -> str:
        """What the run came to, in a sentence or two."""
        return self.task.conclusion(self.history[-1], self.best)


def run(
    recipe: Recipe,
    out: str | os.PathLike[str],
    *,
    resume: bool = False,
    again: bool = False,
    command: str = "",
    machinery: Machinery = HERE,
    audience: Audience = NOBODY,
) -> Result:
    """Train as the recipe says, in the folder `out`.

    `resume` continues the run that is there; `again` deletes it, its own files alone, and starts
    over. `command` is what the user typed, for the record.

    Raises:
        Stopped: If a signal ended it; a checkpoint of the last step is there.
        RecipeError: If the folder holds another run or other files that would be overwritten, or
            the recipe does not fit the network.
        DataError: If the images or their classes cannot be used, or are not those that the run
            began with.
        CheckpointError: If there is nothing whole to resume from.
        NonFiniteError: If the loss is no longer a number.
        StorageError: If something could not be written.
    """
    if resume and again:
        raise RecipeError(
            "`--resume` continues a run, and `--again` deletes it. Give one of the two."
        )
    task = task_of(recipe)
    fabric = make_fabric(
        device=machinery.device,
        devices=machinery.devices,
        nodes=machinery.nodes,
        strategy=machinery.strategy,
        precision=recipe.precision,
    )
    if not fabric.is_global_zero:
        audience = NOBODY
    folder = RunFolder(Path(out))
    with ExitStack() as stack:
        stack.enter_context(in_company(fabric))
        stop = stack.enter_context(listening())
        devices = [fabric.device] if fabric.device.type == "cuda" else []
        stack.enter_context(torch.random.fork_rng(devices))
        restarted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
        again = again and not restarted
        first_decides(fabric, lambda: enter(folder, stack, resume=resume, again=again))
        read: list[Checkpoint] = []  # on rank 0, which has to read one before it is chosen
        found = first_decides(
            fabric,
            lambda: look(folder, recipe, task, resume=resume or restarted, again=again, read=read),
        )
        for text in found.notes:
            audience.note(text)
        if found.finished is not None:
            return Result(folder, found.finished, fabric.global_rank, task)
        checkpoint = None
        if found.checkpoint is not None:
            checkpoint = read.pop() if read else read_checkpoint(found.checkpoint)
        lesson, loaded, about, notes = open_subject(
            recipe,
            task,
            began=None if checkpoint is None else checkpoint.folder,
            workers=machinery.workers,
            command=command,
        )
        for text in notes:
            audience.note(text)
        lesson = _looked_through(lesson, loaded.model, fabric, recipe, machinery, audience)
        about = replace(about, identity=same_on_all_ranks(fabric, lesson))
        if about.identity.train == about.identity.test:
            audience.note(
                "The test images are the training images, so that the accuracy says nothing about "
                "others."
            )
        else:
            for text in first_decides(fabric, lambda: _copies(lesson)):
                audience.note(text)
        trainee = make_trainee(recipe, loaded, fabric)
        if checkpoint is None:  # only now, so that what could not begin leaves nothing
            first_decides(fabric, lambda: begin(folder, about, again=again))
        else:
            about = go_on(trainee, lesson, recipe, about, checkpoint)
            del checkpoint  # its tensors are in the network now
            history = trainee.state.history
            for text in first_decides(fabric, lambda: restore_log(folder.log, history)):
                audience.note(text)
        _train(trainee, lesson, recipe, folder, about, stop, machinery, audience)
        tensors = take(trainee)
        for text in first_decides(fabric, lambda: _finish(tensors, trainee.state, folder, about)):
            audience.note(text)
        return Result(folder, trainee.state.history, fabric.global_rank, task)


def _copies(lesson: Lesson) -> list[str]:
    """Say which images in class folders are there twice."""
    train, test = lesson.train, lesson.test
    if isinstance(train, ImageFolder) and isinstance(test, ImageFolder):
        return remarks_on_copies(train, test)
    return []


def _looked_through(
    lesson: Lesson,
    network: nn.Module,
    fabric: Fabric,
    recipe: Recipe,
    machinery: Machinery,
    audience: Audience,
) -> Lesson:
    """Refuse what cannot be done, and leave out bad images, before anything is written."""
    looks = machinery.tns or machinery.attention_values
    if looks and is_sharded(fabric):
        raise RecipeError(
            "`--tns` and `--attention-values` look at whole networks, and `--strategy fsdp` has "
            "only shares of one. Look at the finished network instead."
        )
    if machinery.attention_values and not choosers(network):
        raise RecipeError(
            "`--attention-values` are those of modules that scale a step, and there are none. "
            "Give such an `--attention`, or leave it out."
        )
    if warning := stem_warning(network, lesson.preparation.input_size[1]):
        audience.note(warning)
    if recipe.skip_bad_images:
        lesson, notes = without_bad_images(lesson)
        for text in notes:
            audience.note(text)
    return lesson


def _train(
    trainee: Trainee,
    lesson: Lesson,
    recipe: Recipe,
    folder: RunFolder,
    about: About,
    stop: Stop,
    machinery: Machinery,
    audience: Audience,
) -> None:
    state = trainee.state
    per_epoch = -(-len(lesson.train) // recipe.batch_size)

    def save() -> None:
        tensors = take(trainee)
        _check_finite(tensors, state)
        state.precision = trainee.fabric.strategy.precision.state_dict()
        first_decides(
            trainee.fabric,
            lambda: write_checkpoint(folder.checkpoints, about, tensors, state) and None,
        )

    if not state.step:
        save()  # a folder that cannot hold the run is found out now
    done = min(state.step * recipe.batch_size, recipe.epochs * len(lesson.train))
    audience.begin(recipe.epochs * len(lesson.train), done)
    while len(state.history) < recipe.epochs:
        trained = train_epoch(
            trainee,
            lesson,
            recipe,
            stop=stop,
            save_every=machinery.save_every,
            save=save,
            on_step=audience.step,
        )
        tested = evaluate(trainee, lesson, recipe, stop) if trained else None
        if trained is None or tested is None:
            if trained is not None:
                save()
            raise Stopped(
                f"stopped after step {state.step}, which is kept in {folder.path}. Continue with "
                "the same command and `--resume`.",
                stop.agreed,
            )
        rate = learning_rate(recipe, state.step - 1, per_epoch)
        row = _row(lesson.task, state, trained, tested, rate)
        if machinery.tns:
            row |= _stiffness(trainee, lesson, machinery.tns)
        if machinery.attention_values:
            _keep_values(trainee, lesson, machinery.attention_values, folder, row["epoch"])
        _remember(lesson.task, state, row)
        save()
        first_decides(trainee.fabric, lambda: write_log(folder.log, state.history))
        audience.epoch(row)


def _check_finite(tensors: Tensors, state: State) -> None:
    for name, tensor in tensors.weights.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise NonFiniteError(
                f"{name} is no longer finite after step {state.step}, in epoch "
                f"{len(state.history) + 1}. Lower `learning_rate` or set `clip_norm`, and start "
                "over; the last checkpoint is from before."
            )


def _row(task: Task, state: State, trained: Sums, tested: Columns, rate: float) -> dict[str, Any]:
    columns: Columns = {f"train_{name}": value for name, value in task.columns(trained).items()}
    columns |= {f"test_{name}": value for name, value in tested.items()}
    epoch = len(state.history) + 1
    for name, value in columns.items():
        if value is not None and not math.isfinite(value):
            raise NonFiniteError(
                f"`{name}` is {value} after epoch {epoch}. Lower `learning_rate` or set "
                "`clip_norm`, and start over; the last checkpoint is from before."
            )
    return {
        "epoch": epoch,
        "step": state.step,
        "learning_rate": rate,
        **columns,
        "images_per_second": trained["samples"] / state.seconds,
    }


def _images(lesson: Lesson, limit: int, rank: int = 0, ranks: int = 1) -> Iterator[Any]:
    """Yield some test images in batches, evenly chosen; of several ranks, each yields its own."""
    batches = lesson.test.batches(
        lesson.preparation, batch_size=LARGEST_TEST_BATCH, limit=limit, workers=lesson.workers
    )
    return map(lesson.task.inputs, part_of(batches, rank, ranks))


def _stiffness(trainee: Trainee, lesson: Lesson, limit: int) -> dict[str, Any]:
    """Return the TNS of the network on some test images."""
    fabric, kind = trainee.fabric, next(trainee.judged.parameters()).dtype
    images = _images(lesson, limit, fabric.global_rank, fabric.world_size)
    typed = (mapped(batch, lambda image: image.to(kind)) for batch in images)
    report = measure(trainee.judged, typed, keep=0)
    return {"tns": report.tns, "tns_se": report.tns_se}


def _keep_values(
    trainee: Trainee, lesson: Lesson, limit: int, folder: RunFolder, epoch: int
) -> None:
    """Write down which step sizes the attached modules choose for some test images."""

    def write() -> None:
        values = step_sizes(trainee.judged, ((batch, None) for batch in _images(lesson, limit)))
        write_values(folder.attention, epoch, values)

    first_decides(trainee.fabric, write)


def _remember(task: Task, state: State, row: dict[str, Any]) -> None:
    state.history.append(row)
    if not state.best or task.is_better(row, state.best):
        state.best = {key: row[key] for key in ("epoch", "step", task.best)}
    state.tally, state.seconds = {}, 0.0


def _finish(tensors: Tensors, state: State, folder: RunFolder, about: About) -> list[str]:
    """Write the networks that a run leaves behind, then remove what it needed on the way."""
    epoch, step, notes = state.best["epoch"], state.best["step"], []
    assert isinstance(epoch, int), "a row counts epochs and steps"
    assert isinstance(step, int)
    name = checkpoint_name(epoch, step)
    try:
        best = read_checkpoint(folder.checkpoints / name)
        write_model(folder.best, about, best.tensors.average or best.tensors.weights, best.state)
    except CheckpointError as error:  # not worth the last network
        notes = [f"The network of the best epoch is lost: {error}"]
    log = {LOG: log_text(state.history).encode()}  # sealed, so that a damaged one can be restored
    write_model(folder.final, about, tensors.average or tensors.weights, state, parts=log)
    discard_all(folder.checkpoints, about.identity.run)
    return notes
