"""A tally counts what it is told, exactly, and survives being written down."""

import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from stiffnet.train.tally import Tally
from tolerances import RTOL

CPU = torch.device("cpu")


def batch(samples, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(samples, classes, generator=generator)
    return logits, torch.randint(classes, (samples,), generator=generator)


def tallied(batches):
    tally = Tally(CPU)
    for logits, labels in batches:
        tally.add(F.cross_entropy(logits, labels, reduction="sum"), logits, labels)
    return tally


@pytest.mark.parametrize("classes", [2, 5, 20])
def test_it_agrees_with_sorting_and_counting(classes):
    batches = [batch(samples, classes, seed) for seed, samples in enumerate((7, 1, 32))]
    found = tallied(batches).outcome()
    logits = torch.cat([part[0] for part in batches]).double().numpy()
    labels = torch.cat([part[1] for part in batches]).numpy()
    place = (np.argsort(-logits, axis=1) == labels[:, None]).argmax(1)
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    chosen = shifted[np.arange(len(labels)), labels]
    assert found.samples == 40
    assert found.top1 == (place == 0).mean()
    assert found.top5 == (place < 5).mean()
    assert found.loss == pytest.approx(-np.log(chosen / shifted.sum(1)).mean(), rel=RTOL["norm"])


def test_a_network_that_does_not_choose_is_not_right():
    flat, labels = torch.zeros(8, 4), torch.arange(8) % 4
    assert tallied([(flat, labels)]).outcome().top1 == 0.25


def test_counts_do_not_saturate():
    tally = Tally(CPU)
    tally.hits[0] = 2**24
    tally.loss += 2.0**24
    logits, labels = torch.tensor([[1.0, 0.0]]), torch.tensor([0])
    tally.add(torch.tensor(1.0), logits, labels)
    assert tally.hits.tolist() == [2**24 + 1, 1, 1]
    assert tally.loss.item() == 2**24 + 1


def test_json_gives_the_same_bits_back():
    tally = tallied([batch(33, 7, 0)])
    copy = Tally.from_dict(json.loads(json.dumps(tally.to_dict())), CPU)
    assert copy.outcome() == tally.outcome()
    assert torch.equal(copy.loss, tally.loss)
