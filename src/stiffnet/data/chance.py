"""Random numbers that are a pure function of (seed, epoch, sample), so that nothing is remembered.

Whatever the batch, the worker, the rank or the step at which a run was resumed: a sample draws the
same numbers. They are part of what a recipe promises, so they never change between versions.
"""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from stiffnet.scramble import word_at

WORD = 2**64


class Purpose(IntEnum):
    """What the numbers decide; each has numbers of its own, so that none depends on another."""

    AUGMENTATION = 0
    ORDER = 1
    PICTURE = 2


def uniforms(
    seed: int,
    epoch: int,
    samples: npt.NDArray[np.int64],
    draws: int,
    *,
    purpose: Purpose = Purpose.AUGMENTATION,
) -> npt.NDArray[np.float64]:
    """Return `draws` numbers in [0, 1) for each sample, shape (sample, draw).

    The first draws of a sample stay what they are when more are asked for.

    >>> uniforms(0, 0, np.array([7]), 2).round(6)
    array([[0.393007, 0.253719]])
    """
    state = np.zeros((1, 1), dtype=np.uint64)
    for number in (purpose, seed, epoch):
        state = word_at(state, np.array([[number % WORD]], dtype=np.uint64))
    state = word_at(state, np.asarray(samples).astype(np.uint64).reshape(-1, 1))
    words = word_at(state, np.arange(draws, dtype=np.uint64).reshape(1, -1))
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53  # as many bits as it holds
