"""Paired differences: the textbook's tests, and what happens at their edges."""

import itertools

import numpy as np
import pytest
from scipy import stats

from stiffnet.stiffness.paired import mcnemar, paired
from tolerances import RTOL

CLOSE = {"rel": RTOL["float64"]}


def samples(count=9, seed=0):
    random = np.random.default_rng(seed)
    first = random.lognormal(size=count)
    return first, first + random.normal(0.2, 0.3, size=count)


def test_it_is_the_paired_t_test():
    first, second = samples()
    found, reference = paired(first, second), stats.ttest_rel(second, first)
    interval = reference.confidence_interval(0.95)
    assert found.p == pytest.approx(reference.pvalue, **CLOSE)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), **CLOSE)
    assert (found.first, found.second) == (first.mean(), second.mean())


def test_what_both_share_does_not_hide_a_difference():
    first, second = samples(40)
    noise = 100 * np.random.default_rng(3).normal(size=40)
    assert paired(first + noise, second + noise).p == pytest.approx(
        paired(first, second).p,
        rel=1e-6,  # the sum is rounded
    )


def test_swapping_turns_the_sign():
    first, second = samples()
    one, other = paired(first, second), paired(second, first)
    assert (one.low, one.high, one.p) == (-other.high, -other.low, other.p)


@pytest.mark.parametrize("count", [2, 5, 6, 12])
@pytest.mark.parametrize("shift", [0.0, 0.5, -0.1])
def test_a_constant_difference_is_judged_by_its_sign(count, shift):
    """It has no t, and two samples prove nothing, however equal they are."""
    first = samples(count)[0]
    found = paired(first, first + shift)
    wins = count * (shift > 0)
    reference = stats.binomtest(wins, count).pvalue if shift else 1.0
    assert found.p == pytest.approx(reference, **CLOSE)
    shown = shift if count > 5 else None
    assert (found.low, found.high) == pytest.approx((shown, shown), abs=1e-12)


def test_one_sample_has_no_interval():
    assert paired(np.ones(1), np.zeros(1)) == (1.0, 0.0, None, None, None)


@pytest.mark.parametrize("seed", range(4))
def test_mcnemar_counts_all_outcomes_of_those_that_disagree(seed):
    first, second = np.random.default_rng(seed).random((2, 12)) < 0.5
    won, lost = (second & ~first).sum(), (first & ~second).sum()
    outcomes = [sum(coins) for coins in itertools.product((0, 1), repeat=won + lost)]
    middle = (won + lost) / 2
    extreme = np.mean([abs(o - middle) >= abs(won - middle) for o in outcomes])
    assert mcnemar(first, second).p == pytest.approx(extreme, **CLOSE)


def test_equal_answers_do_not_differ():
    answers = np.array([True, False, True])
    found = mcnemar(answers, answers)
    assert found.p == 1.0
    assert found.low < 0 < found.high


def test_intervals_hold_the_truth_as_often_as_they_say():
    """Of accuracies 0.6 and 0.7 on 80 samples that agree by chance alone."""
    random = np.random.default_rng(0)
    inside = 0
    for _ in range(1000):
        found = mcnemar(random.random(80) < 0.6, random.random(80) < 0.7)
        inside += found.low <= 0.1 <= found.high
    assert inside / 1000 == pytest.approx(0.95, abs=0.021)  # three standard errors of 1,000
