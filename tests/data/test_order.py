"""Laws of the order: every sample once, in even batches, whoever asks."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from stiffnet.data.chance import uniforms
from stiffnet.data.order import epoch_batches, share
from stiffnet.errors import DataError


@given(st.integers(1, 300), st.integers(1, 400), st.integers(0, 2**63 - 1), st.integers(0, 500))
def test_every_sample_comes_once_in_even_batches(count, batch_size, seed, epoch):
    batches = epoch_batches(count, batch_size, seed=seed, epoch=epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(count))
    sizes = [len(batch) for batch in batches]
    assert len(sizes) == -(-count // batch_size)
    assert max(sizes) <= batch_size
    assert max(sizes) - min(sizes) <= 1
    assert all(batch.dtype == np.int64 for batch in batches)


def test_it_is_a_function_of_seed_and_epoch():
    def order(seed, epoch, batch_size=10):
        return tuple(np.concatenate(epoch_batches(100, batch_size, seed=seed, epoch=epoch)))

    assert order(1, 2) == order(1, 2) == order(1, 2, batch_size=33)
    assert len({order(seed, epoch) for seed in range(10) for epoch in range(10)}) == 100


def test_the_order_never_changes():
    """Printed when this was first written: a run that is resumed depends on it."""
    batches = epoch_batches(10, 4, seed=3, epoch=1)
    assert [batch.tolist() for batch in batches] == [[8, 3, 9, 2], [7, 0, 6], [4, 5, 1]]


def test_every_place_is_as_likely_for_every_sample():
    places = np.zeros((6, 6))
    for epoch in range(3000):
        order = np.concatenate(epoch_batches(6, 6, seed=0, epoch=epoch))
        places[np.arange(6), order] += 1
    assert stats.chisquare(places.ravel()).pvalue > 0.01


def test_the_order_says_nothing_about_the_augmentation():
    order = np.concatenate(epoch_batches(20_000, 128, seed=0, epoch=0))
    chances = uniforms(0, 0, order, 3)
    for draw in range(3):
        assert (
            abs(stats.spearmanr(np.arange(20_000), chances[:, draw]).statistic) < 0.03
        )  # four deviations


@given(st.integers(0, 200), st.integers(1, 17))
def test_ranks_share_a_batch_evenly_and_in_order(size, ranks):
    batch = np.random.default_rng(size).permutation(size)
    parts = [share(batch, rank, ranks) for rank in range(ranks)]
    assert np.array_equal(np.concatenate(parts), batch)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("count", [0, -1])
@pytest.mark.parametrize("name", ["count", "batch_size"])
def test_nothing_to_train_on_is_refused(name, count):
    numbers = {"count": 10, "batch_size": 2} | {name: count}
    with pytest.raises(DataError, match=f"`{name}` is {count}, .* Give 1 or more"):
        epoch_batches(**numbers, seed=0, epoch=0)


@pytest.mark.parametrize("rank", [-1, 2, 3])
def test_a_rank_that_does_not_exist_is_refused(rank):
    with pytest.raises(DataError, match=f"`rank` is {rank} of 2 ranks"):
        share(np.arange(4), rank, 2)
