"""The loop is the textbook's: an independent one, written out, comes to the same weights."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from stiffnet.data import open_splits
from stiffnet.data.augment import Augmentation
from stiffnet.data.order import epoch_batches
from stiffnet.network.open import open_model
from stiffnet.train.recipe import Recipe
from stiffnet.train.run import run
from tolerances import RTOL

TINY = Recipe(
    model="resnet20_cifar",
    data="generated:50",
    image_size=8,
    batch_size=16,
    epochs=2,
    learning_rate=0.01,
    precision="64-true",
    padding=1,
)


def textbook(recipe, optimizer_of):
    """Train in plain torch, float64, without anything of the training room."""
    train, _ = open_splits(recipe.data)
    loaded = open_model(recipe.model, num_classes=len(train.classes), seed=recipe.seed)
    size = (3, recipe.image_size, recipe.image_size)
    preparation = type(loaded.preparation)(size, loaded.preparation.mean, loaded.preparation.std)
    model = loaded.model.double().train()
    optimizer = optimizer_of(model)
    for epoch in range(recipe.epochs):
        batches = epoch_batches(len(train), recipe.batch_size, seed=recipe.seed, epoch=epoch)
        loader = train.training_batches(
            preparation,
            Augmentation(crop="pad", padding=recipe.padding, flip=recipe.flip),
            batches,
            seed=recipe.seed,
            epoch=epoch,
        )
        for images, labels in loader:
            optimizer.zero_grad()
            logits = model(images.double())
            F.cross_entropy(logits, labels, label_smoothing=recipe.label_smoothing).backward()
            if recipe.clip_norm:
                nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
            optimizer.step()
    return model.state_dict()


def ours(recipe, folder):
    run(recipe, folder)
    return load_file(folder / "final" / "weights.safetensors")


CASES = {
    "sgd": (
        {"momentum": 0.8, "nesterov": True, "weight_decay": 1e-2},
        lambda m: torch.optim.SGD(
            m.parameters(), lr=0.01, momentum=0.8, nesterov=True, weight_decay=1e-2
        ),
    ),
    "adamw": (
        {"optimizer": "adamw", "learning_rate": 1e-3, "weight_decay": 0.05},
        lambda m: torch.optim.AdamW(m.parameters(), lr=1e-3, weight_decay=0.05),
    ),
    "smoothed and clipped": (
        {"label_smoothing": 0.1, "clip_norm": 0.5, "momentum": 0.0},
        lambda m: torch.optim.SGD(m.parameters(), lr=0.01, weight_decay=1e-4),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_the_textbooks(case, tmp_path):
    settings, optimizer_of = CASES[case]
    recipe = replace(TINY, **settings)
    expected = textbook(recipe, optimizer_of)
    found = ours(recipe, tmp_path / "run")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(
            found[name], tensor, rtol=RTOL["steps64"], atol=RTOL["steps64"], msg=name
        )


def test_equal_recipes_give_equal_bits_and_another_seed_does_not(tmp_path):
    weights = [
        ours(replace(TINY, seed=seed, precision="32-true"), tmp_path / str(number))
        for number, seed in enumerate((0, 0, 1))
    ]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not all(torch.equal(weights[0][name], weights[2][name]) for name in weights[0])


def test_the_callers_random_numbers_go_on_as_if_nothing_had_been_drawn(tmp_path):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    run(TINY, tmp_path / "run")
    assert torch.equal(torch.get_rng_state(), before)


def test_it_learns(tmp_path):
    recipe = Recipe(
        model="resnet20_cifar",
        data="generated:200",
        image_size=16,
        batch_size=20,
        epochs=6,
        learning_rate=0.05,
        schedule="onecycle",
        padding=1,
        flip=False,
    )
    history = run(recipe, tmp_path / "run").history
    assert history[-1]["train_loss"] < 0.5 * history[0]["train_loss"]
    assert history[-1]["test_top1"] > 0.5
