"""A tally counts what it is told, exactly, and survives being written down."""

import json

import numpy as np
import pytest
import torch

from stiffnet.train.recipe import Recipe
from stiffnet.train.tally import Tally
from stiffnet.train.tasks import task_of
from stiffnet.train.tasks.base import Judged
from tolerances import RTOL

CPU = torch.device("cpu")
TASK = task_of(Recipe())


def batch(samples, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(samples, classes, generator=generator)
    return logits, torch.randint(classes, (samples,), generator=generator)


def tallied(batches):
    tally = Tally(TASK, CPU)
    for logits, labels in batches:
        tally.add(TASK.judge(lambda images: images, (logits, labels), training=True))
    return tally


@pytest.mark.parametrize("classes", [2, 5, 20])
def test_it_agrees_with_sorting_and_counting(classes):
    batches = [batch(samples, classes, seed) for seed, samples in enumerate((7, 1, 32))]
    sums = tallied(batches).to_dict()
    found = TASK.columns(sums)
    logits = torch.cat([part[0] for part in batches]).double().numpy()
    labels = torch.cat([part[1] for part in batches]).numpy()
    place = (np.argsort(-logits, axis=1) == labels[:, None]).argmax(1)
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    chosen = shifted[np.arange(len(labels)), labels]
    assert sums["samples"] == 40
    assert found["top1"] == (place == 0).mean()
    assert found["top5"] == (place < 5).mean()
    assert found["loss"] == pytest.approx(-np.log(chosen / shifted.sum(1)).mean(), rel=RTOL["norm"])


def test_a_network_that_does_not_choose_is_not_right():
    flat, labels = torch.zeros(8, 4), torch.arange(8) % 4
    assert TASK.columns(tallied([(flat, labels)]).to_dict())["top1"] == 0.25


def test_counts_do_not_saturate():
    one = torch.tensor(1)
    start = {"samples": 2**24, "top1": 0, "top5": 2**53, "loss": 2.0**24}
    tally = Tally(TASK, CPU).fill(start)
    tally.add(Judged(1, torch.tensor(1.0), {"top1": one, "top5": one}))
    expected = {"samples": 2**24 + 1, "top1": 1, "top5": 2**53 + 1, "loss": 2.0**24 + 1}
    assert tally.to_dict() == expected


def test_json_gives_the_same_bits_back():
    tally = tallied([batch(33, 7, 0)])
    copy = Tally(TASK, CPU).fill(json.loads(json.dumps(tally.to_dict())))
    assert copy.to_dict() == tally.to_dict()
    assert torch.equal(copy.loss, tally.loss)


def test_a_pass_without_samples_has_no_means():
    assert all(np.isnan(value) for value in TASK.columns(Tally(TASK, CPU).to_dict()).values())


def test_what_a_task_did_not_declare_is_not_counted():
    with pytest.raises(AssertionError, match="declares"):
        Tally(TASK, CPU).add(Judged(1, torch.tensor(1.0), {"top1": torch.tensor(1)}))
