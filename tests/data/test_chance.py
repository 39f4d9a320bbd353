"""Laws of the random numbers: who they depend on, that they are uniform, and that they stay."""

import itertools

import numpy as np
import pytest
from scipy import stats

from stiffnet.data.chance import Purpose, uniforms

WORD = 2**64


def naive(*numbers):
    """One number, in Python's own integers: splitmix64 chained over purpose, seed, epoch, ..."""
    state = 0
    for number in numbers:
        state = (state + (number + 1) * 0x9E3779B97F4A7C15) % WORD
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % WORD
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB % WORD
        state = state ^ (state >> 31)
    return (state >> 11) / 2**53


@pytest.mark.parametrize("purpose", Purpose)
@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**63 - 1, 2**64 - 1])
def test_it_is_the_definition(seed, purpose):
    samples = np.array([0, 1, 7, 49_999, 2**40])
    found = uniforms(seed, 3, samples, 4, purpose=purpose)
    assert found.dtype == np.float64
    assert found.tolist() == [
        [naive(purpose, seed, 3, sample, draw) for draw in range(4)] for sample in samples.tolist()
    ]


def test_the_values_never_change():
    """Printed when this was first written: a run that is resumed years later depends on them."""
    assert uniforms(0, 0, np.array([0]), 1)[0, 0] == 0.47141042966848024
    assert uniforms(1, 2, np.array([3]), 5)[0, 4] == 0.07098183291014604
    assert uniforms(7, 0, np.array([9]), 1, purpose=Purpose.ORDER)[0, 0] == 0.7669648020354332


def test_a_sample_does_not_see_the_others_or_their_order():
    samples = np.random.default_rng(0).permutation(1000)
    whole = uniforms(5, 2, samples, 3)
    parts = [uniforms(5, 2, part, 3) for part in np.array_split(samples, 7)]
    assert np.array_equal(whole, np.concatenate(parts))
    assert np.array_equal(whole[np.argsort(samples)], uniforms(5, 2, np.arange(1000), 3))


def test_further_draws_leave_the_first_as_they_were():
    samples = np.arange(50)
    assert np.array_equal(uniforms(1, 1, samples, 20)[:, :3], uniforms(1, 1, samples, 3))


def test_no_samples_and_no_draws_are_possible():
    assert uniforms(0, 0, np.array([], dtype=np.int64), 3).shape == (0, 3)
    assert uniforms(0, 0, np.arange(4), 0).shape == (4, 0)


def test_every_number_makes_a_difference():
    """Also where two of them change places, or one's change could undo another's."""
    found = [
        uniforms(seed, epoch, np.arange(12), 12, purpose=purpose).ravel()
        for purpose, seed, epoch in itertools.product(Purpose, range(12), range(12))
    ]
    everything = np.concatenate(found)
    assert len(np.unique(everything)) == len(everything) == len(Purpose) * 12**4


def test_they_are_uniform():
    """By Kolmogorov and Smirnov along each axis, and by counting pairs in 16 × 16 boxes."""
    samples = np.arange(20_000)
    for numbers in (
        uniforms(0, 0, samples, 1),
        uniforms(0, 0, samples[:1], 20_000),
        np.stack([uniforms(0, epoch, samples[:1], 1) for epoch in range(5_000)]),
        np.stack([uniforms(seed, 0, samples[:1], 1) for seed in range(5_000)]),
    ):
        assert numbers.min() >= 0
        assert numbers.max() < 1
        assert stats.kstest(numbers.ravel(), "uniform").pvalue > 0.01
    pairs = uniforms(0, 0, samples, 2)
    counts, _, _ = np.histogram2d(*pairs.T, bins=16, range=[(0, 1), (0, 1)])
    assert stats.chisquare(counts.ravel()).pvalue > 0.01


def test_neighbours_have_nothing_to_do_with_each_other():
    samples, count = np.arange(20_000), 20_000
    base = uniforms(3, 4, samples, 2)
    neighbours = {
        "sample": (base[:-1, 0], base[1:, 0]),
        "draw": (base[:, 0], base[:, 1]),
        "epoch": (base[:, 0], uniforms(3, 5, samples, 1)[:, 0]),
        "seed": (base[:, 0], uniforms(4, 4, samples, 1)[:, 0]),
        "purpose": (base[:, 0], uniforms(3, 4, samples, 1, purpose=Purpose.ORDER)[:, 0]),
        "seed and epoch": (base[:, 0], uniforms(4, 3, samples, 1)[:, 0]),
        "sample and draw": (base[1:, 0], base[:-1, 1]),
    }
    for name, (one, other) in neighbours.items():
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / count**0.5, name  # four deviations


def test_one_bit_changes_half_of_the_bits():
    """Of the sample's index, of the seed and of the epoch alike."""
    for change in range(3):
        flipped = []
        for bit in range(0, 40, 3):
            one = [11, 5, np.arange(500)]
            other = [11, 5, np.arange(500)]
            other[change] = other[change] ^ (1 << bit)
            words = [(uniforms(*numbers, 1) * 2**53).astype(np.uint64) for numbers in (one, other)]
            flipped.append(np.unpackbits((words[0] ^ words[1]).view(np.uint8)).sum() / (500 * 53))
        assert np.abs(np.array(flipped) - 0.5).max() < 0.02  # six deviations of 26,500 bits
