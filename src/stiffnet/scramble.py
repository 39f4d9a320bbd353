"""splitmix64: numbers that look random, and are the same on every machine and in every version."""

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

STRIDE = np.uint64(0x9E3779B97F4A7C15)  # the odd number nearest to 2**64 / golden ratio


def word_at(start: Words, place: Words | np.uint64) -> Words:
    """Return the word at `place` of the splitmix64 sequence that begins at `start`.

    A word can serve as the start of the next sequence, so that many numbers come to be mixed.

    >>> word_at(np.zeros(1, dtype=np.uint64), np.uint64(0))
    array([16294208416658607535], dtype=uint64)
    """
    x = start + STRIDE * (place + np.uint64(1))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Words = x ^ (x >> np.uint64(31))
    return mixed
