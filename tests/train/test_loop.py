"""The loop learns, repeats itself, and touches nothing but the model."""

import numpy as np
import pytest
import torch
from torch import nn

from stiffnet.data.images import ImageSet, Preparation
from stiffnet.train.loop import accuracy, fit

PREPARATION = Preparation((1, 4, 4), (0.5,), (0.5,))


@pytest.fixture
def stripes():
    """Dark images and light ones: two classes that a linear layer tells apart."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 96)
    noise = rng.integers(0, 100, (96, 1, 4, 4))
    images = (noise + 150 * labels[:, None, None, None]).astype(np.uint8)
    return ImageSet("stripes", images, labels.astype(np.int64), ("dark", "light"))


def train(data, seed=0, padding=1):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    random = torch.get_rng_state()
    history = list(
        fit(
            model,
            data,
            PREPARATION,
            epochs=4,
            batch_size=16,
            learning_rate=0.1,
            padding=padding,
            seed=seed,
        )
    )
    assert torch.equal(torch.get_rng_state(), random)
    return model, history


def test_it_learns(stripes):
    model, history = train(stripes)
    assert [epoch.number for epoch in history] == [1, 2, 3, 4]
    assert history[-1].loss < history[0].loss
    assert accuracy(model, stripes.batches(PREPARATION, batch_size=7)) > 0.9


def test_equal_seeds_give_equal_weights_and_others_do_not(stripes):
    weights = [train(stripes, seed)[0][1].weight for seed in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_accuracy_counts_and_gives_the_mode_back(stripes):
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    with torch.no_grad():
        model[1].weight.zero_()
        model[1].bias.copy_(torch.tensor([1.0, 0.0]))  # always says dark
    model.train()
    expected = float((stripes.labels == 0).mean())
    assert accuracy(model, stripes.batches(PREPARATION, batch_size=7)) == pytest.approx(expected)
    assert model.training
