"""The sample: which images, once each, shared among ranks, and no sampler is asked."""

from itertools import chain

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from stiffnet.callbacks.sample import take
from stiffnet.errors import DataError

NUMBERS = torch.arange(20.0)[:, None]
LABELS = torch.zeros(20, dtype=torch.long)
PAIRS = TensorDataset(NUMBERS, LABELS)
BATCHES = [(NUMBERS[:3], LABELS[:3]), (NUMBERS[3:], LABELS[3:])]
EVEN = [2, 7, 12, 17]  # the middles of four equal stretches of 20


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(NUMBERS, LABELS, strict=True))


class Doubling(DataLoader):
    """A loader that does something to its batches, as timm's for GPUs do."""

    def __iter__(self):
        return ((2 * images, labels) for images, labels in super().__iter__())


def numbers(batches):
    return [int(value) for batch in batches for value in batch.flatten()]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (NUMBERS, EVEN),
        (PAIRS, EVEN),
        (DataLoader(PAIRS, batch_size=3, shuffle=True), EVEN),
        (DataLoader(PAIRS, batch_size=3, drop_last=True), EVEN),
        # What can only be iterated over gives its first ones.
        (BATCHES, [0, 1, 2, 3]),
        (DataLoader(Stream(), batch_size=3), [0, 1, 2, 3]),
        (DataLoader(BATCHES, batch_size=None), [0, 1, 2, 3]),
        (Doubling(PAIRS, batch_size=3), [0, 2, 4, 6]),
    ],
    ids=["tensor", "data set", "shuffled", "drops", "list", "stream", "unbatched", "own loader"],
)
def test_which_images_are_taken(data, expected):
    assert numbers(take(data, 4)) == expected


def test_a_loader_of_a_part_of_its_data_set_gives_that_part():
    loader = DataLoader(PAIRS, batch_size=2, sampler=SubsetRandomSampler([5, 6, 7]))
    assert sorted(numbers(take(loader, 10))) == [5, 6, 7]


@pytest.mark.parametrize("kind", [SequentialSampler, RandomSampler])
def test_a_sampler_that_is_derived_from_one_of_all_samples_says_which_there_are(kind):
    class Part(kind):
        def __iter__(self):
            return iter(range(5, 10))

    loader = DataLoader(PAIRS, 4, sampler=Part(PAIRS))
    assert numbers(take(loader, 4)) == [5, 6, 7, 8]


def test_a_batch_sampler_of_ones_own_says_which_images_there_are():
    loader = DataLoader(PAIRS, batch_sampler=[[5, 6], [7]])
    assert numbers(take(loader, 4)) == [5, 6, 7]


def _weighted(generator):
    return WeightedRandomSampler(torch.ones(20), 20, generator=generator)


@pytest.mark.parametrize(
    "options",
    [
        lambda generator: {"sampler": _weighted(generator), "batch_size": 4},
        lambda generator: {"batch_sampler": BatchSampler(_weighted(generator), 4, False)},
        lambda generator: {"sampler": _weighted(None), "batch_size": 4, "generator": generator},
    ],
)
def test_the_order_of_training_stays_where_a_sampler_has_its_own_generator(options):
    def epoch(*, sampled):
        torch.manual_seed(0)
        loader = DataLoader(PAIRS, **options(torch.Generator().manual_seed(1)))
        if sampled:
            with torch.random.fork_rng():  # the process's own numbers are others' to give back
                assert len(numbers(take(loader, 8))) == 8
        return numbers(images for images, _ in loader)

    assert epoch(sampled=True) == epoch(sampled=False)


def test_an_epoch_that_runs_in_kept_workers_goes_on():
    loader = DataLoader(
        PAIRS, 4, sampler=SubsetRandomSampler(range(20)), num_workers=1, persistent_workers=True
    )
    batches = iter(loader)
    first = next(batches)[0]
    take(loader, 8)
    assert sorted(numbers([first, *(images for images, _ in batches)])) == list(range(20))


def test_a_seed_chooses_at_random_and_always_the_same():
    one, again, other = (numbers(take(PAIRS, 6, seed=seed)) for seed in (1, 1, 2))
    assert one == again != other
    assert len(set(one)) == 6


@pytest.mark.parametrize("data", [NUMBERS, PAIRS, [NUMBERS[:3], NUMBERS[3:4], NUMBERS[4:]]])
@pytest.mark.parametrize("ranks", [2, 3, 25])
def test_ranks_share_the_sample_of_one(data, ranks):
    parts = [numbers(take(data, 7, rank=rank, ranks=ranks)) for rank in range(ranks)]
    assert sorted(chain(*parts)) == sorted(numbers(take(data, 7)))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_dictionary_keeps_its_arguments_and_loses_its_labels():
    [batch] = take([{"x": NUMBERS[:4], "mask": torch.ones(9), "labels": LABELS[:4]}], 2)
    assert batch["x"].flatten().tolist() == [0, 1]
    assert batch["mask"].shape == (9,)
    assert set(batch) == {"x", "mask"}


def test_fewer_samples_than_asked_are_all_taken():
    assert numbers(take(PAIRS, 100)) == list(range(20))


@pytest.mark.parametrize(
    ("data", "words"),
    [([], "no sample in the data"), (NUMBERS[:0], "no sample in the data"), (3, "of type int")],
)
def test_data_without_samples_are_refused(data, words):
    with pytest.raises(DataError, match=words):
        take(data, 4)
