"""From a recipe to what it names: the data, the network, and the network in training."""

from dataclasses import replace
from typing import Any

import torch
from lightning_fabric import Fabric
from msgspec import Struct, structs
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from stiffnet.data import open_splits
from stiffnet.data.augment import Augmentation
from stiffnet.data.boxes import BoxedImages
from stiffnet.data.folder import ImageFolder
from stiffnet.data.splits import subset
from stiffnet.errors import CheckpointError, CorruptFileError, RecipeError
from stiffnet.network.loaded import LoadedModel
from stiffnet.network.model_folder import Fact, ModelFolder
from stiffnet.network.open import open_model
from stiffnet.schema import fitted
from stiffnet.train.average import Average
from stiffnet.train.checkpoint import About
from stiffnet.train.frozen import freeze_stages
from stiffnet.train.groups import parameter_groups
from stiffnet.train.initial import fast_parameters, initial_network
from stiffnet.train.loop import Lesson, Trainee
from stiffnet.train.noise import add_batch_noise, add_noise
from stiffnet.train.ranks import is_sharded
from stiffnet.train.recipe import Recipe
from stiffnet.train.recipe_file import to_toml
from stiffnet.train.synced_norms import synchronise
from stiffnet.train.tasks.base import Task
from stiffnet.trajectory.wrappers import plain_run
from stiffnet.words import first_line, listed

SHOWN = 4  # classes in a sentence


class _Options(Struct, forbid_unknown_fields=True):
    """What the manifest of a checkpoint says about how its network is built."""

    num_classes: int | None = None
    in_chans: int | None = None
    image_size: int | None = None
    attention: str | None = None


def open_subject(
    recipe: Recipe,
    task: Task,
    *,
    began: ModelFolder | None = None,
    workers: int = 0,
    command: str = "",
) -> tuple[Lesson, LoadedModel, About, list[str]]:
    """Open the data and the network of a recipe, and see that they belong together.

    Args:
        recipe: Names them.
        task: What is learnt.
        began: A checkpoint of the run, if it has one. The network is built as that says, so that
            what the run started from is not needed any more, and its weights are still to come.
        workers: Processes that decode image files.
        command: What the user typed, for the record.

    Returns:
        The data, the network, what the run says about itself, and sentences on the network.

    Raises:
        DataError: If the data cannot be used.
        CheckpointError: If the network does not fit the data, or it is fused.
        RecipeError: If the recipe asks for what there is not.
    """
    train, test = open_splits(task.data(recipe.data))
    if recipe.train_images:
        train = subset(train, recipe.train_images)  # type: ignore[type-var]  # it is one of them
    notes: list[str] = []
    if isinstance(test, ImageFolder) and (empty := test.empty_classes):
        notes.append(f"there are no test images of {listed(list(empty), SHOWN)}.")
    notes += dict.fromkeys((*train.notes, *test.notes))  # one of both, once
    if began is not None:
        loaded = _rebuilt(began)
    else:
        loaded, told = initial_network(recipe, task.outputs(train), task.classes(train))
        notes += told
        if loaded.changes:
            raise CheckpointError(
                f"{recipe.model} is a deployed network, whose norms or branches were merged. Train "
                "the network that it was folded from."
            )
        task.check(loaded, train, _tried_out(loaded))
    task.open(loaded.preparation)
    augmentation = Augmentation(
        crop=recipe.crop, padding=recipe.padding, flip=recipe.flip, scale=recipe.crop_scale
    )
    lesson = Lesson(task, train, test, loaded.preparation, augmentation, workers)
    made_by: dict[str, Fact] = {"command": command, "data": train.name, "seed": recipe.seed}
    if recipe.weights:
        made_by["started_from"] = recipe.weights
    about = About(
        name=loaded.name,
        options={**loaded.options, "num_classes": task.outputs(train)},
        classes=task.classes(train),
        preparation=loaded.preparation,
        recipe=to_toml(recipe),
        made_by=made_by,
    )
    return lesson, loaded, about, notes


def _rebuilt(began: ModelFolder) -> LoadedModel:
    """Build the network of a checkpoint, without its weights."""
    try:
        options = fitted(dict(began.options), _Options)
    except ValueError as error:
        raise CorruptFileError(
            f"{began.path} was written with options that this version does not know: {error}. Use "
            "the version that wrote it, or start over in another folder."
        ) from error
    loaded = open_model(began.name, **structs.asdict(options))
    return replace(loaded, preparation=began.preparation)


def without_bad_images(lesson: Lesson) -> tuple[Lesson, list[str]]:
    """Leave out image files that cannot be read; the sentences say which.

    Raises:
        DataError: If no image of a class is left.
    """
    kept, faults, listed = [], [], 0
    for images in (lesson.train, lesson.test):
        listed += len(images)
        if isinstance(images, ImageFolder | BoxedImages):
            images, bad = images.without_bad_images(lesson.preparation, workers=lesson.workers)
            faults += bad
        kept.append(images)
    if faults:
        verb = "is" if len(faults) == 1 else "are"
        faults.append(f"{len(faults):,} of {listed:,} images {verb} left out.")
    return replace(lesson, train=kept[0], test=kept[1]), faults


def make_trainee(recipe: Recipe, loaded: LoadedModel, fabric: Fabric) -> Trainee:
    """Put a network in training: its norms, its optimizer, its average, its devices."""
    network = loaded.model
    fast = fast_parameters(loaded) if recipe.backbone_rate != 1 else set()
    if recipe.frozen_stages:
        freeze_stages(network, recipe.frozen_stages)
    if recipe.channels_last:
        network = network.to(memory_format=torch.channels_last)
    if recipe.batch_noise:
        network = add_batch_noise(network)
    if fabric.world_size > 1 and recipe.sync_norms:
        network = synchronise(network)
    if recipe.noise != "none":
        network = add_noise(network, recipe.noise, recipe.noise_a, recipe.noise_b, recipe.seed)
    if recipe.channels_last and is_sharded(fabric):
        raise RecipeError(
            "`channels_last` orders whole tensors, and `--strategy fsdp` has only shares of them. "
            "Set it to false."
        )
    if recipe.ema_decay and is_sharded(fabric):
        raise RecipeError(
            "`ema_decay` keeps a second whole network, and `--strategy fsdp` has only shares of "
            "one. Leave one of the two out."
        )
    wrapped = fabric.setup_module(network)
    optimizer = fabric.setup_optimizers(_optimizer(recipe, network, fast))
    average = Average(network, recipe.ema_decay) if recipe.ema_decay else None
    return Trainee(fabric, network, wrapped, optimizer, average)


def _optimizer(recipe: Recipe, network: nn.Module, fast: set[str]) -> Optimizer:
    groups = parameter_groups(
        network, recipe.weight_decay, recipe.decay, fast=fast, slow_rate=recipe.backbone_rate
    )
    if recipe.optimizer == "adamw":
        return AdamW(groups, lr=recipe.learning_rate)
    return SGD(groups, lr=recipe.learning_rate, momentum=recipe.momentum, nesterov=recipe.nesterov)


def _tried_out(loaded: LoadedModel) -> Any:
    """Run the network on two images of the size that it will get, before a run begins."""
    parameter = next(loaded.model.parameters())
    batch = torch.zeros(2, *loaded.preparation.input_size, dtype=parameter.dtype)
    try:
        with plain_run(loaded.model):
            return loaded.model(batch)
    except Exception as error:  # whatever a network's own code raises
        said = first_line(error)
        raise RecipeError(
            f"{loaded.name} cannot be run on images of {loaded.preparation.input_size[1]} pixels: "
            f"{said}. Set `image_size` to one that it takes."
        ) from error
