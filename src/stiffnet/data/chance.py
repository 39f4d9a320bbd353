"""Random numbers that are a pure function of (seed, epoch, sample), so that nothing is remembered.

Whatever the batch, the worker, the rank or the step at which a run was resumed: a sample draws the
same numbers. They are part of what a recipe promises, so they never change between versions.
"""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

STRIDE = np.uint64(0x9E3779B97F4A7C15)  # the odd number nearest to 2**64 / golden ratio
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
        state = _at(state, np.array([[number % WORD]], dtype=np.uint64))
    state = _at(state, np.asarray(samples).astype(np.uint64).reshape(-1, 1))
    words = _at(state, np.arange(draws, dtype=np.uint64).reshape(1, -1))
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53  # as many bits as it holds


def _at(start: npt.NDArray[np.uint64], place: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the word at `place` of the splitmix64 sequence that begins at `start`.

    A word serves as the start of the next sequence, so all the numbers come to be mixed.
    """
    x = start + STRIDE * (place + np.uint64(1))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed
