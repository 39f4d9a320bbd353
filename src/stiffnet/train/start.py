"""Where a run begins: what is in its folder, whose it is, and whether it fits what was asked."""

from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric

from stiffnet.errors import CheckpointError, DataError, RecipeError
from stiffnet.files import atomic_write, check_writable
from stiffnet.train.checkpoint import (
    About,
    Checkpoint,
    checkpoints,
    discard_all,
    finished_folders,
    newest_whole,
    strange_state,
)
from stiffnet.train.identity import RUN, Identity, check_same_data, is_of, new_identity
from stiffnet.train.log import finished_log
from stiffnet.train.loop import Lesson, Trainee
from stiffnet.train.ranks import first_decides, largest
from stiffnet.train.recipe import Recipe, place_free
from stiffnet.train.recipe_file import build_recipe
from stiffnet.train.run_folder import RunFolder
from stiffnet.train.snapshot import restore
from stiffnet.train.state import check_place
from stiffnet.train.tasks.base import Task
from stiffnet.words import few

SHOWN = 3  # other files in a sentence


@dataclass(frozen=True)
class Found:
    """What the folder of a run holds."""

    checkpoint: Path | None = None  # to go on from; without one it begins at the beginning
    finished: list[dict[str, Any]] | None = None  # the rows of a run that has come to its end
    notes: tuple[str, ...] = ()


def enter(folder: RunFolder, stack: ExitStack, *, resume: bool, again: bool) -> None:
    """Make the folder this run's own, if there is anything to do in it."""
    if resume and not folder.recipe.exists():
        raise CheckpointError(
            f"{folder.path} holds no run to resume. Leave out `--resume` to begin one there, or "
            "give the folder of a run with `--out`."
        )
    check_writable(folder.path)
    if not resume:
        _refuse_strangers(folder, again=again)
    stack.enter_context(folder.locked())


def look(
    folder: RunFolder,
    recipe: Recipe,
    task: Task,
    *,
    resume: bool,
    again: bool,
    read: list[Checkpoint],
) -> Found:
    """Decide where to begin: at a checkpoint, at the beginning, or not at all.

    The checkpoint had to be read to be verified; `read` gets it, so that nobody reads it again.
    """
    if again:
        return Found()
    if not folder.recipe.exists():
        _refuse_headless(folder)
        return Found()
    if not resume:
        raise RecipeError(
            f"{folder.path} holds a run already. Add `--resume` to continue it, `--again` to "
            "delete it and start over, or choose another folder."
        )
    run = folder.owner
    _same_recipe(recipe, build_recipe(folder.recipe), folder)
    if folder.finished and (not run or is_of(folder.final, run)):
        if run:
            folder.sweep(run)
            discard_all(folder.checkpoints, run)
        rows, notes = finished_log(folder.log, folder.final, task.best)
        said = f"The run in {folder.path} is finished; there is nothing to resume."
        return Found(finished=rows, notes=(*notes, said))
    if not run:
        raise CheckpointError(
            f"The run in {folder.path} has no {RUN} that this version wrote, so it is not known "
            "which data it began with. Finish it with the version that began it, or start over in "
            "another folder."
        )
    _refuse_links(folder)
    folder.sweep(run)
    newest, faults = newest_whole(folder.checkpoints, run)
    if newest is None:
        if others := finished_folders(folder.checkpoints):  # all of them of other runs
            raise CheckpointError(
                f"{others[0]} is of another run than {folder.path / RUN} names. Restore the "
                f"{RUN} of this run, or start over in another folder."
            )
        said = f"The run in {folder.path} has no checkpoint yet, so it begins at step 0."
        return Found(notes=(said,))
    read.append(newest)
    where = newest.path
    _same_recipe(recipe, build_recipe(where / folder.recipe.name), folder)
    notes = [f"{fault} An older checkpoint is used." for fault in faults]
    return Found(checkpoint=where, notes=(*notes, f"Resuming from {where}."))


def begin(folder: RunFolder, about: About, *, again: bool) -> None:
    """Make room for a new run, and write down which it is and what its recipe is."""
    _refuse_strangers(folder, again=again)
    if folder.owner:
        folder.clear(folder.owner)
    folder.sweep("")
    atomic_write(folder.path / RUN, about.identity.to_json())  # first: it says whose the rest is
    atomic_write(folder.recipe, about.recipe)


def go_on(
    trainee: Trainee, lesson: Lesson, recipe: Recipe, about: About, checkpoint: Checkpoint
) -> About:
    """Bring a network in training to where a checkpoint left it.

    Returns:
        What the run says about itself: the identity is the one that it began with.
    """
    where, state, began = checkpoint.path, checkpoint.state, checkpoint.identity
    check_same_data(began, about.identity, where=f"The run in {where.parent.parent}")
    try:
        check_place(state, lesson.task, recipe.epochs, -(-len(lesson.train) // recipe.batch_size))
    except ValueError as error:
        raise strange_state(where, error) from error
    restore(trainee, checkpoint.tensors, state)
    return replace(about, identity=began)


def same_on_all_ranks(fabric: Fabric, lesson: Lesson) -> Identity:
    """Return the identity of a run on these data, when every rank sees the same ones."""
    mine = new_identity(lesson)
    first = first_decides(fabric, lambda: mine)
    if largest(fabric, int(replace(mine, run=first.run) != first)):
        raise DataError(
            "The ranks do not see the same images. Give every machine the same copy of the data."
        )
    return first


def _refuse_strangers(folder: RunFolder, *, again: bool) -> None:
    """Refuse a folder in which files that are not ours would be replaced or removed."""
    run = folder.owner
    if not run and (taken := folder.taken):
        verb = "was" if len(taken) == 1 else "were"
        raise RecipeError(
            f"{folder.path} holds {few(taken, SHOWN)}, which {verb} not written by a run of this "
            "version, and which a run would overwrite. Move that away, or choose another folder."
        )
    _refuse_links(folder)
    if run and (again or not folder.recipe.exists()):
        names = [str(path.relative_to(folder.path)) for path in folder.strangers(run)]
        if names:
            raise RecipeError(
                f"{folder.path} holds {few(names, SHOWN)} among the files of its run, which "
                "the run did not write. Move that away first, or choose another folder."
            )


def _refuse_headless(folder: RunFolder) -> None:
    """Refuse to begin where a run has got somewhere, though its recipe is gone."""
    run = folder.owner
    if run and (checkpoints(folder.checkpoints, run) or is_of(folder.final, run)):
        raise RecipeError(
            f"{folder.path} holds the networks of a run, and its {folder.recipe.name} is gone. "
            "Restore that, for instance from a checkpoint, or add `--again` to delete the run."
        )


def _refuse_links(folder: RunFolder) -> None:
    for path in folder.places:
        if path.is_symlink():
            raise RecipeError(
                f"{path} is a link, and what it leads to may not be the run's own. Put a folder in "
                "its place, or choose another folder for the run."
            )


def _same_recipe(asked: Recipe, there: Recipe, folder: RunFolder) -> None:
    other = [
        f"{field.name} ({getattr(there, field.name)!r} there, {getattr(asked, field.name)!r} now)"
        for field in fields(Recipe)
        if getattr(place_free(there), field.name) != getattr(place_free(asked), field.name)
    ]
    if other:
        raise RecipeError(
            f"The run in {folder.path} has another recipe: {', '.join(other)}. Resume it with its "
            f"own, `--recipe {folder.recipe}`, or choose another folder."
        )
