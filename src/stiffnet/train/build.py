"""From a recipe to what it names: the data, the network, and the network in training."""

from dataclasses import replace

import torch
from lightning_fabric import Fabric
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from stiffnet.data import open_splits
from stiffnet.data.augment import Augmentation
from stiffnet.data.folder import ImageFolder
from stiffnet.data.images import ImageSet
from stiffnet.errors import CheckpointError, RecipeError
from stiffnet.network.attention_text import NONE
from stiffnet.network.loaded import LoadedModel
from stiffnet.network.model_names import is_model_name
from stiffnet.network.open import open_model
from stiffnet.train.average import Average
from stiffnet.train.checkpoint import About
from stiffnet.train.groups import parameter_groups
from stiffnet.train.loop import Lesson, Trainee, logits_of
from stiffnet.train.noise import add_batch_noise, add_noise
from stiffnet.train.ranks import is_sharded
from stiffnet.train.recipe import Recipe
from stiffnet.train.recipe_file import to_toml
from stiffnet.train.synced_norms import synchronise
from stiffnet.trajectory.wrappers import plain_run


def open_subject(
    recipe: Recipe, *, workers: int = 0, command: str = ""
) -> tuple[Lesson, LoadedModel, About]:
    """Open the data and the network of a recipe, and see that they belong together.

    Raises:
        DataError: If the data cannot be used.
        CheckpointError: If the network's classes are not those of the data, or it is fused.
        RecipeError: If the recipe asks for what there is not.
    """
    train, test = open_splits(recipe.data)
    attention = None if recipe.attention == NONE else recipe.attention
    named = is_model_name(recipe.model)
    if attention and not named:
        raise RecipeError(
            f"{recipe.model} has the attention that it was trained with, and `attention` is "
            f"{attention!r}. Leave it out, or name the network."
        )
    loaded = open_model(
        recipe.model,
        weights=recipe.weights or None,
        num_classes=len(train.classes) if named else None,
        image_size=recipe.image_size or None,
        attention=attention,
        seed=recipe.seed,
    )
    if loaded.changes:
        raise CheckpointError(
            f"{recipe.model} is a deployed network, whose norms or branches were merged. Train the "
            "network that it was folded from."
        )
    _same_classes(loaded, train.classes)
    _try_out(loaded, train)
    augmentation = Augmentation(
        crop=recipe.crop, padding=recipe.padding, flip=recipe.flip, scale=recipe.crop_scale
    )
    lesson = Lesson(train, test, loaded.preparation, augmentation, workers)
    about = About(
        name=loaded.name,
        options={**loaded.options, "num_classes": len(train.classes)},
        classes=train.classes,
        preparation=loaded.preparation,
        recipe=to_toml(recipe),
        made_by={"command": command, "data": train.name, "seed": recipe.seed},
    )
    return lesson, loaded, about


def without_bad_images(lesson: Lesson) -> tuple[Lesson, list[str]]:
    """Leave out image files that cannot be read; the sentences say which.

    Raises:
        DataError: If no image of a class is left.
    """
    kept, faults, listed = [], [], 0
    for images in (lesson.train, lesson.test):
        listed += len(images)
        if isinstance(images, ImageFolder):
            images, bad = images.without_bad_images(lesson.preparation, workers=lesson.workers)
            faults += bad
        kept.append(images)
    if faults:
        verb = "is" if len(faults) == 1 else "are"
        faults.append(f"{len(faults):,} of {listed:,} images {verb} left out.")
    return replace(lesson, train=kept[0], test=kept[1]), faults


def make_trainee(recipe: Recipe, network: nn.Module, fabric: Fabric) -> Trainee:
    """Put a network in training: its norms, its optimizer, its average, its devices."""
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
    optimizer = fabric.setup_optimizers(_optimizer(recipe, network))
    average = Average(network, recipe.ema_decay) if recipe.ema_decay else None
    return Trainee(fabric, network, wrapped, optimizer, average)


def _optimizer(recipe: Recipe, network: nn.Module) -> Optimizer:
    groups = parameter_groups(network, recipe.weight_decay, recipe.decay)
    if recipe.optimizer == "adamw":
        return AdamW(groups, lr=recipe.learning_rate)
    return SGD(groups, lr=recipe.learning_rate, momentum=recipe.momentum, nesterov=recipe.nesterov)


def _try_out(loaded: LoadedModel, images: ImageSet | ImageFolder) -> None:
    """See that the network runs on images of the size that it will get, before a run begins."""
    parameter = next(loaded.model.parameters())
    batch = torch.zeros(2, *loaded.preparation.input_size, dtype=parameter.dtype)
    try:
        with plain_run(loaded.model):
            width = logits_of(loaded.model(batch)).shape[1]
    except Exception as error:  # whatever a network's own code raises
        said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".!")
        raise RecipeError(
            f"{loaded.name} cannot be run on images of {loaded.preparation.input_size[1]} pixels: "
            f"{said}. Set `image_size` to one that it takes."
        ) from error
    if width != len(images.classes):
        raise CheckpointError(
            f"{loaded.name} has {width} outputs, and {images.name} has {len(images.classes)} "
            "classes. Start from a network by its name."
        )


def _same_classes(loaded: LoadedModel, classes: tuple[str, ...]) -> None:
    if not loaded.classes or (set(loaded.classes) == set(classes) and loaded.classes == classes):
        return
    if sorted(loaded.classes) == sorted(classes):
        raise CheckpointError(
            f"{loaded.name} knows the same classes as the data, in another order: "
            f"{_few(list(loaded.classes))} there, {_few(list(classes))} here. Start from a network "
            "by its name."
        )
    lacking = [name for name in classes if name not in loaded.classes]
    adding = [name for name in loaded.classes if name not in classes]
    raise CheckpointError(
        f"{loaded.name} was trained on other classes than the data have: it does not know "
        f"{_few(lacking)}, and the data lack {_few(adding)}. Start from a network by its name."
    )


def _few(names: list[str]) -> str:
    shown = ", ".join(names[:4]) or "none"
    return shown + (f" and {len(names) - 4} more" if len(names) > 4 else "")
