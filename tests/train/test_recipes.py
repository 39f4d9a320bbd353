"""The named recipes are the rows of the papers' tables."""

import re
from dataclasses import replace

import pytest

from stiffnet.errors import UnknownNameError
from stiffnet.network.model_names import is_model_name
from stiffnet.train.recipe import Recipe
from stiffnet.train.recipes import RECIPES

CIFAR = ("cifar10", 0, "pad")
STL10 = ("stl10", 96, "pad")
IMAGENET = ("folder", 0, "resized")

# optimizer, momentum, schedule, milestones, weight decay, gamma, rate, epochs, batch
STEPNET_TABLE_6 = {
    "stepnet-resnet34": ("sgd", 0.9, "multistep", (30, 60, 90), 1e-4, 0.1, 0.1, 120, 256),
    "stepnet-resnet50": ("sgd", 0.9, "multistep", (30, 60, 90), 1e-4, 0.1, 0.1, 120, 256),
    "stepnet-resnet164": ("sgd", 0.9, "multistep", (81, 122), 1e-4, 0.1, 0.1, 164, 128),
}
# Epochs and batch size are in the text of appendix C; gamma of ACNet is printed as 0.333.
ASR_TABLE_10 = {
    "asr-resnet83": ("sgd", 0.9, "multistep", (81, 122), 1e-4, 0.1, 0.1, 164, 128),
    "asr-resnet164": ("sgd", 0.9, "multistep", (81, 122), 1e-4, 0.1, 0.1, 164, 128),
    "asr-vgg19": ("sgd", 0.9, "multistep", (60, 120, 160), 5e-4, 0.2, 0.1, 164, 128),
    "asr-shufflenetv2": ("sgd", 0.9, "multistep", (60, 120, 160), 5e-4, 0.2, 0.1, 164, 128),
    "asr-mobilenet": ("sgd", 0.9, "multistep", (60, 120, 160), 5e-4, 0.2, 0.1, 164, 128),
    "asr-repvgg": ("sgd", 0.9, "multistep", (130,), 1e-4, 0.1, 0.1, 164, 128),
    "asr-acnet": ("sgd", 0.9, "cosine", (), 1e-4, 0.1, 0.1, 164, 128),
}
ASR_TABLE_11 = {
    "asr-resnet34": ("sgd", 0.9, "multistep", (30, 60, 90), 1e-4, 0.1, 0.1, 100, 128),
    "asr-resnet50": ("sgd", 0.9, "multistep", (30, 60, 90), 1e-4, 0.1, 0.1, 100, 128),
    "asr-resnet101": ("sgd", 0.9, "multistep", (30, 60, 90), 1e-4, 0.1, 0.1, 100, 128),
    "asr-vit-s": ("adamw", 0.9, "cosine", (), 5e-2, 0.1, 5e-4, 300, 256),
    "asr-vit-b": ("adamw", 0.9, "cosine", (), 5e-2, 0.1, 5e-4, 300, 256),
    "asr-vit-b-384": ("adamw", 0.9, "cosine", (), 1e-8, 0.1, 5e-6, 30, 64),
}
PRINTED = STEPNET_TABLE_6 | ASR_TABLE_10 | ASR_TABLE_11


def figures(recipe):
    return (
        recipe.optimizer,
        recipe.momentum,
        recipe.schedule,
        recipe.milestones,
        recipe.weight_decay,
        recipe.gamma,
        recipe.learning_rate,
        recipe.epochs,
        recipe.batch_size,
    )


@pytest.mark.parametrize("name", PRINTED)
def test_the_figures_are_the_printed_ones(name):
    assert figures(RECIPES[name].value) == PRINTED[name]


@pytest.mark.parametrize("name", ASR_TABLE_10)
def test_stl10_differs_from_cifar_in_its_images_and_its_batch_of_16(name):
    cifar, stl10 = RECIPES[name].value, RECIPES[f"{name}-stl10"].value
    assert figures(stl10) == (*PRINTED[name][:-1], 16)
    assert (stl10.data, stl10.image_size, stl10.crop) == STL10
    assert cifar == replace(
        stl10, data="cifar10", batch_size=128, image_size=32 if name == "asr-repvgg" else 0
    )


def test_each_recipe_says_what_images_it_is_for():
    for name in STEPNET_TABLE_6 | ASR_TABLE_10:
        recipe = RECIPES[name].value
        expected = CIFAR if recipe.epochs == 164 else IMAGENET
        if name != "asr-repvgg":
            assert (recipe.data, recipe.image_size, recipe.crop) == expected
    for name in ASR_TABLE_11:
        recipe = RECIPES[name].value
        size = 384 if name == "asr-vit-b-384" else 0
        assert (recipe.data, recipe.image_size, recipe.crop) == ("folder", size, "resized")
        assert recipe.weights == ("pretrained" if size else "")


def test_what_no_table_prints_is_left_at_its_default():
    kept = (
        "seed", "attention", "nesterov", "decay", "warmup_epochs", "warmup_share", "backbone_rate",
        "train_images", "label_smoothing", "mixup", "cutmix", "clip_norm", "ema_decay", "precision",
        "channels_last", "padding", "flip", "crop_scale", "noise",
    )  # fmt: skip
    for name in PRINTED:
        recipe = RECIPES[name].value
        assert all(getattr(recipe, field) == getattr(Recipe(), field) for field in kept), name


def test_the_quick_one_and_its_trial():
    assert RECIPES["quick"].value == Recipe(
        schedule="onecycle",
        learning_rate=0.2,
        nesterov=True,
        weight_decay=5e-4,
        epochs=10,
        batch_size=128,
        channels_last=True,
        crop="pad",
    )
    assert RECIPES["smoke"].value == replace(RECIPES["quick"].value, epochs=1)


def test_fine_tuning_starts_from_published_weights_and_spares_them():
    recipe = RECIPES["finetune"].value
    assert recipe.weights == "pretrained"
    assert 0 < recipe.backbone_rate < 1
    assert recipe.warmup_share > 0
    assert recipe.schedule == "cosine"


def test_names_are_short_and_summaries_name_the_table():
    ours, detectors = 6, 1  # whose recipe is tested with their task
    assert len(RECIPES) == len(PRINTED) + len(ASR_TABLE_10) + ours + detectors
    for entry in RECIPES:
        assert re.fullmatch(r"[a-z]+(-[a-z0-9]+)*", entry.name)
        assert re.match(r"ours|(StepNet Table [36]|ASR Table 1[01]): \S", entry.summary)
        assert "\n" not in entry.summary
    for table, rows in (
        ("Step.*6", STEPNET_TABLE_6),
        ("A.*10", ASR_TABLE_10),
        ("A.*11", ASR_TABLE_11),
    ):
        assert all(re.match(f"{table}:", RECIPES[name].summary) for name in rows)


def test_every_recipe_names_a_network_that_is_there_or_promised():
    models = {entry.value.model for entry in RECIPES}
    assert {model for model in models if not is_model_name(model)} == set()


def test_no_two_recipes_are_one():
    assert len({entry.value.fingerprint for entry in RECIPES}) == len(RECIPES)


def test_an_unknown_one_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match=r"no recipe called 'quik'. Did you mean 'quick'"):
        RECIPES["quik"]
