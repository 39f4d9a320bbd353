"""Verdicts: closed forms of the tests, and how often chance alone decides."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from stiffnet.studies.verdict import (
    Finding,
    Verdict,
    as_printed,
    correlated,
    overall,
    positive,
    within,
)

DRAWS = 2_000
SLACK = 3 * math.sqrt(0.05 * 0.95 / DRAWS)  # three standard errors of a rate of 5 %


def test_the_interval_is_students():
    values = np.array([0.4, 1.1, 0.7, 0.9, 1.6])
    found = positive(values)
    low, high = stats.t.interval(0.95, 4, values.mean(), values.std(ddof=1) / math.sqrt(5))
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-12)
    assert found.p == pytest.approx(stats.ttest_1samp(values, 0).pvalue, rel=1e-12)
    assert found.estimate == pytest.approx(0.94)


def test_three_seeds_reach_as_far_as_the_module_says():
    values = np.array([-1.0, 0.0, 1.0])  # of deviation one
    assert positive(values).high == pytest.approx(2.484, abs=1e-3)


def test_turning_the_differences_around_turns_the_verdict_around():
    opposite = {Verdict.HELD: Verdict.REFUTED, Verdict.UNDECIDED: Verdict.UNDECIDED}
    for values in ([1.0, 1.1, 0.9], [1.0, -2.0, 3.0]):
        there, back = positive(values), positive([-value for value in values])
        assert back.verdict is opposite[there.verdict]
        assert (back.low, back.high) == pytest.approx((-there.high, -there.low))


@pytest.mark.parametrize("values", [[], [5.0], [5.0, 5.1]])
def test_fewer_than_three_seeds_decide_nothing(values):
    for found in (positive(values), within(values, 100.0)):
        assert found.verdict is Verdict.UNDECIDED
        assert f"{len(values)} seed" in found.why


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_a_number_decides_nothing(bad):
    for found in (positive([1.0, 1.1, bad]), within([0.0, 0.1, bad], 5.0)):
        assert found.verdict is Verdict.UNDECIDED
        assert "not a finite number" in found.why


def test_counts_are_equal_or_not_and_need_no_seeds():
    printed = {"block 1": 16.0, "block 2": 8.0}
    held = as_printed({"block 1": 16, "block 2": 8, "more": 3}, printed)
    assert held.verdict is Verdict.HELD
    assert held.why == "All 2 counts equal what is printed."
    for wrong in (9, None):
        found = as_printed({"block 1": 16, "block 2": wrong}, printed)
        assert found.verdict is Verdict.REFUTED
        assert overall([held, found]).verdict is Verdict.REFUTED
    assert overall([held, held]).verdict is Verdict.HELD
    for none in ({"block 1": 16}, {}):
        assert as_printed(none, printed).verdict is Verdict.UNDECIDED
    assert as_printed({"block 1": 16}, {}).verdict is Verdict.UNDECIDED


def test_differences_that_do_not_vary_are_left_to_their_signs():
    for seeds, verdict in ((3, Verdict.UNDECIDED), (5, Verdict.UNDECIDED), (6, Verdict.HELD)):
        found = positive([0.1 + 0.2] * (seeds - 1) + [0.3])
        assert found.verdict is verdict
        assert found.p == 2.0 ** (1 - seeds)
    assert positive([0.0] * 20).verdict is Verdict.UNDECIDED
    assert positive([-0.5] * 6).verdict is Verdict.REFUTED


def test_equal_values_lie_within_any_margin_and_distant_ones_do_not():
    assert within([0.0, 0.0, 0.0], 0.1).verdict is Verdict.HELD
    assert within([7.0, 7.0, 7.0], 0.1).verdict is Verdict.UNDECIDED  # three signs
    assert within([-7.0] * 6, 0.1).verdict is Verdict.REFUTED
    for value, written in ((7.0, "+7"), (-7.0, "−7")):
        found = within([value] * 6, 0.1)
        assert found.estimate == value
        assert f"differences are {written}, which is outside ±0.1" in found.why


@pytest.mark.parametrize("seeds", [3, 4, 8])
@pytest.mark.parametrize("kind", ["normal", "images", "heavy"])
def test_chance_decides_at_most_one_comparison_in_twenty(seeds, kind):
    random = np.random.default_rng(seeds)
    draws = {
        "normal": lambda: random.normal(size=(DRAWS, seeds)),
        "images": lambda: (
            random.binomial(360, 0.98, (DRAWS, seeds)) - random.binomial(360, 0.98, (DRAWS, seeds))
        ),
        "heavy": lambda: random.standard_t(4, (DRAWS, seeds)),
    }
    decided = sum(positive(row).verdict is not Verdict.UNDECIDED for row in draws[kind]())
    assert decided / DRAWS <= 0.05 + SLACK
    if kind == "normal":
        assert decided / DRAWS >= 0.05 - SLACK  # and is not merely silent


def test_a_margin_is_held_by_chance_at_most_once_in_twenty():
    """Where the truth lies on the edge of the margin, which is the worst case."""
    random = np.random.default_rng(0)
    values = random.normal(1.0, 0.1, (DRAWS, 4))
    wrong = sum(within(row, 1.0).verdict is not Verdict.UNDECIDED for row in values)
    assert wrong / DRAWS <= 0.05 + SLACK


def test_ranks_are_judged_by_all_orders_of_the_networks():
    x = np.arange(5.0)[:, None] * np.ones(3)
    found = correlated(x, x**3, 1)
    assert found.verdict is Verdict.HELD
    assert found.estimate == pytest.approx(1.0)
    assert found.p == 2 / math.factorial(5)  # rising, and falling
    assert correlated(x, -x, 1).verdict is Verdict.REFUTED
    assert correlated(x, -x, -1).verdict is Verdict.HELD


def test_a_permutation_test_agrees_with_trying_all_by_hand():
    random = np.random.default_rng(3)
    x, y = random.random((6, 4)), random.random((6, 4))
    found = correlated(x, y, 1)
    means = x.mean(1), y.mean(1)
    rho = stats.spearmanr(*means).statistic
    every = [
        stats.spearmanr(means[0], order).statistic for order in itertools.permutations(means[1])
    ]
    assert found.estimate == pytest.approx(rho)
    assert found.p == pytest.approx(np.mean(np.abs(every) >= abs(rho) - 1e-12))


def test_more_networks_than_can_be_tried_are_drawn_the_same_every_time():
    random = np.random.default_rng(1)
    x, y = random.random((9, 3)), random.random((9, 3))
    assert correlated(x, y, 1) == correlated(x, y, 1)
    rising = np.arange(9.0)[:, None] + np.zeros(3)
    assert correlated(rising, rising, 1).p < 0.001


def test_unrelated_networks_are_related_at_most_once_in_twenty():
    random = np.random.default_rng(2)
    draws = 400
    decided = 0
    for _ in range(draws):
        x, y = random.normal(size=(6, 1)) + np.zeros(3), random.normal(size=(6, 1)) + np.zeros(3)
        decided += correlated(x, y, 1).verdict is not Verdict.UNDECIDED
    assert decided / draws <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / draws)


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (np.ones((4, 3)), "4 networks are too few"),
        (np.ones((6, 2)), "2 seeds cannot show it"),
        (np.ones((6, 3)), "the same for all networks"),
        (np.full((6, 3), np.nan), "not a finite number"),
    ],
)
def test_ranks_that_cannot_be_judged_are_undecided(x, said):
    found = correlated(x, np.arange(x.size, dtype=float).reshape(x.shape), 1)
    assert found.verdict is Verdict.UNDECIDED
    assert said in found.why


def finding(verdict, p):
    return Finding(Verdict(verdict), "", 3, p=p)


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        ([], "undecided"),
        ([("held", 0.01), ("held", 0.04)], "held"),
        ([("held", 0.01), ("undecided", 0.3)], "undecided"),
        ([("held", 0.01), ("refuted", 0.03)], "undecided"),  # one of two needs 0.025
        ([("held", 0.01), ("refuted", 0.02)], "refuted"),
        ([("refuted", 0.04)], "refuted"),
    ],
)
def test_a_study_is_judged_by_all_of_its_comparisons(given, verdict):
    assert overall([finding(*each) for each in given]).verdict == verdict


def test_chance_refutes_at_most_one_study_in_twenty():
    random = np.random.default_rng(5)
    studies, refuted = 1_000, 0
    for _ in range(studies):
        found = [positive(random.normal(size=3)) for _ in range(6)]
        refuted += overall(found).verdict is not Verdict.UNDECIDED
    assert refuted / studies <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / studies)
