"""A fixed sample of somebody's data: taken once, the same on every run, shared among the ranks."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

from stiffnet.errors import DataError
from stiffnet.trajectory.batch import limited, picked, samples_in

BATCH = 32  # samples in a pass, where the data do not say
_ALL = (SequentialSampler, RandomSampler, DistributedSampler)  # each gives every sample


def take(
    data: Any, samples: int, *, seed: int | None = None, rank: int = 0, ranks: int = 1
) -> list[Any]:
    """Return a rank's part of a sample, as batches of inputs without labels.

    Args:
        data: Images, a data set, a data loader, or any batches that can be iterated over. What can
            be indexed is: images, data sets, and torch's data loaders that go through a whole data
            set. Their samplers are not asked, so that the order of training stays what it was.
        samples: How many to take, over all ranks; all of them if there are fewer.
        seed: Choose at random with this seed; None chooses at even distances. Of data that can
            only be iterated over, the first ones are taken in any case.
        rank: Whose part.
        ranks: How many parts there are.

    Raises:
        DataError: If there is no sample, or a batch cannot be read.
    """
    batches = _indexed(data, samples, seed, rank, ranks)
    with _undisturbed(data):
        kept = list(_first(data, samples, rank, ranks) if batches is None else batches)
    if not kept and ranks == 1:
        raise DataError("There is no sample in the data to measure. Give it at least one.")
    return kept


@contextmanager
def _undisturbed(data: Any) -> Iterator[None]:
    """Give a loader, its samplers and its workers back as they were.

    Their generators decide on the order in which training sees the samples.
    """
    if not isinstance(data, DataLoader):
        yield
        return
    owners = [data, data.sampler, data.batch_sampler, getattr(data.batch_sampler, "sampler", None)]
    found = [each for owner in owners for each in getattr(owner, "__dict__", {}).values()]
    generators = [each for each in found if isinstance(each, torch.Generator)]
    states = [each.get_state() for each in generators]
    workers, data._iterator = data._iterator, None  # those that are kept from epoch to epoch
    try:
        yield
    finally:
        data._iterator = workers
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


def _indexed(
    data: Any, samples: int, seed: int | None, rank: int, ranks: int
) -> Iterator[Any] | None:
    """Yield batches of samples that are asked for by number; None where none can be."""
    collate, size = default_collate, BATCH
    if isinstance(data, DataLoader):
        if not _goes_through_all(data):
            return None
        data, collate, size = data.dataset, data.collate_fn, data.batch_size
    elif not isinstance(data, Tensor | Dataset) or isinstance(data, IterableDataset):
        return None
    own = _chosen(len(data), samples, seed)[rank::ranks]
    parts = [own[start : start + size] for start in range(0, len(own), size)]
    if isinstance(data, Tensor):
        return (data[torch.from_numpy(part)] for part in parts)
    batches = (collate([data[int(i)] for i in part]) for part in parts)
    return (inputs for inputs, _ in limited(batches, None, labelled=False))


def _goes_through_all(loader: DataLoader) -> bool:
    """Whether a loader gives the samples of a data set as they are, each by its number."""
    return (
        type(loader).__iter__ is DataLoader.__iter__
        and loader.batch_size is not None  # nor does one with a batch sampler of its own have it
        and any(type(loader.sampler).__iter__ is kind.__iter__ for kind in _ALL)
        and not isinstance(loader.dataset, IterableDataset)
    )


def _chosen(count: int, samples: int, seed: int | None) -> np.ndarray:
    """Return the numbers of the chosen samples, in order.

    >>> _chosen(8, 4, None), _chosen(2, 4, None)
    (array([1, 3, 5, 7]), array([0, 1]))
    """
    samples = min(samples, count)
    if seed is not None:
        return np.sort(np.random.default_rng(seed).choice(count, samples, replace=False))
    return (2 * np.arange(samples) + 1) * count // (2 * max(samples, 1))


def _first(data: Any, samples: int, rank: int, ranks: int) -> Iterator[Any]:
    """Yield every `ranks`-th of the first samples."""
    if not hasattr(data, "__iter__"):
        raise DataError(
            f"The data to measure are of type {type(data).__name__}. Give images, a data set, or "
            "a data loader."
        )
    before = 0
    for inputs, _ in limited(data, samples, labelled=False):
        size = samples_in(inputs)
        own = torch.arange(size)[(rank - before) % ranks :: ranks]
        before += size
        if len(own):
            yield picked(inputs, own)
