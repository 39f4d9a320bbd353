"""Which samples come in which step of an epoch, and which of them are a rank's."""

from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from stiffnet.data.chance import Purpose, uniforms
from stiffnet.data.images import Batches
from stiffnet.errors import DataError

Batch = TypeVar("Batch")


def epoch_batches(
    count: int, batch_size: int, *, seed: int, epoch: int
) -> list[npt.NDArray[np.int64]]:
    """Return the samples of every batch of one epoch: each of `count` samples once, shuffled.

    There are as few batches as `batch_size` allows, and their sizes differ by at most one, so that
    no small batch at the end gives its samples a larger weight or unsettles a batch norm. The
    result is a pure function of the arguments.

    >>> [batch.tolist() for batch in epoch_batches(5, 2, seed=0, epoch=0)]
    [[1, 2], [4, 0], [3]]

    Raises:
        DataError: If `count` or `batch_size` is below 1.
    """
    for name, value in (("count", count), ("batch_size", batch_size)):
        if value < 1:
            raise DataError(
                f"`{name}` is {value}, which leaves nothing to train on. Give 1 or more."
            )
    keys = uniforms(seed, epoch, np.arange(count), 1, purpose=Purpose.ORDER)[:, 0]
    shuffled = np.argsort(keys, kind="stable").astype(np.int64)
    return np.array_split(shuffled, -(-count // batch_size))


def share(batch: npt.NDArray[np.int64], rank: int, ranks: int) -> npt.NDArray[np.int64]:
    """Return the part of a batch that is `rank`'s: contiguous, and even to within one sample.

    >>> [share(np.arange(5), rank, 2).tolist() for rank in range(2)]
    [[0, 1, 2], [3, 4]]
    """
    if not 0 <= rank < ranks:
        raise DataError(f"`rank` is {rank} of {ranks} ranks. Give one from 0 to {ranks - 1}.")
    return np.array_split(batch, ranks)[rank]


def part_of(batches: Batches[Batch], rank: int, ranks: int) -> Batches[Batch]:
    """Return the batches of one rank: whole ones, so that the ranks in turn give all in order."""
    first, last = (len(batches.indices) * number // ranks for number in (rank, rank + 1))
    return replace(batches, indices=batches.indices[first:last])
