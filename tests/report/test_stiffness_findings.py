from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from report.cases import view
from stiffnet.report.stiffness import totals_table
from stiffnet.report.stiffness_findings import (
    ALPHA,
    at_thresholds,
    comparison,
    findings,
    headline,
    stiffest_steps,
)
from stiffnet.report.text import percent, plain
from stiffnet.stiffness.relate import relate


def known(nsi, counted=None):
    """Return a view whose steps have the given mean NSI."""
    base = view(((len(nsi), (8,)),), samples=6, labels=None, first_counted=True)
    counted = [True] * len(nsi) if counted is None else counted
    steps = base.steps.assign(nsi_mean=nsi, increment_mean=nsi, counted=counted)
    return replace(base, steps=steps, tns_steps=sum(counted) if sum(counted) > 1 else 0)


def test_the_stiffest_step_is_named_with_its_index():
    (first, *_) = findings(known([0.2, 0.9, 0.4]))
    assert plain(first) == (
        "Of the 3 counted steps, NSI is largest at layer1.1 (0.900, 1.8 times the mean of its "
        "stage), then at layer1.2 (0.400) and at layer1.0 (0.200)."
    )


def test_no_step_is_called_the_largest_while_another_is_larger():
    said = plain(findings(known([1.14, 1.05, 0.4], [False, True, True]))[0])
    assert said == (
        "Of the 2 counted steps, NSI is largest at layer1.1 (1.05, 1.4 times the mean of its "
        "stage), then at layer1.2 (0.400); of all steps it is at layer1.0 (1.14), which does not "
        "count."
    )


def test_one_counted_step_is_not_compared_with_the_mean_that_it_is():
    assert "times the mean" not in plain(findings(known([0.5, 0.4], [False, True]))[0])


def test_a_step_that_is_not_counted_is_not_the_stiffest():
    top = stiffest_steps(known([5.0, 0.2, 0.3], [False, True, True]), most=1)
    assert [row["step"] for row in top] == ["layer1.2"]


def test_steps_that_barely_move_the_state_are_counted_from_the_calmest():
    sentence = plain(findings(known([0.5, 0.09, 0.01, 0.05, 0.02]))[1])
    assert sentence.startswith("4 of 5 steps barely move the state (mean NSI below 0.1): ")
    assert sentence.endswith(": layer1.2, layer1.4, layer1.3 and 1 more.")


def test_where_none_barely_moves_the_state_the_calmest_is_named():
    said = plain(findings(known([0.2, 0.9]))[1])
    assert "the calmest, layer1.0, has a mean NSI of 0.200" in said


def test_what_moves_the_state_is_the_increment():
    shown = known([0.5, 0.09, 0.6])
    steps = shown.steps.assign(increment_mean=[0.05, 0.4, 0.06], gated=True)
    said = plain(findings(replace(shown, steps=steps))[1])
    assert said == (
        "2 of 3 steps barely move the state (mean increment below 0.1): layer1.0 and layer1.2."
    )


def test_shares_are_read_off_the_surfaces_at_twice_the_mean():
    shown = view(samples=40)
    i, j = int(np.flatnonzero(np.isclose(shown.m1, 1))[0]), 0
    assert at_thresholds(shown, shown.delta, 1.0, 0.0) == shown.delta[i, j]
    sentences = [plain(sentence) for sentence in findings(shown)]
    assert sentences[2].startswith(percent(shown.delta[i, j]) + " of the images")
    assert percent(shown.proportion[i, j]) in sentences[2]


def test_without_that_point_on_the_grid_nothing_is_said_of_it():
    shown = view(relations=False, samples=10)
    assert len(findings(replace(shown, m1=shown.m1 + 0.013))) == 2


def test_the_headline_has_the_total_and_its_error():
    said = plain(headline(replace(view(samples=10), tns=1.3124, tns_se=0.0412)))
    assert "1.312 ± 0.041, with its standard error over 10 images" in said
    assert "standard error" not in plain(headline(replace(view(samples=10), tns_se=None)))


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (((3, (8,)), (4, (16,))), "It rests on 5 of 7 steps, in 2 of 2 stages"),
        (((1, (4,)), (2, (8,)), (3, (16,))), "It rests on 2 of 6 steps, in 1 of 3 stages"),
        (((5, (8,)),), "It rests on 4 of 5 steps, in 1 of 1 stage,"),
    ],
)
def test_the_headline_says_how_many_steps_the_total_rests_on(layout, said):
    assert said in plain(headline(view(layout, samples=4, labels=None)))


def test_gates_are_told_with_the_total_that_folding_keeps():
    shown = replace(view(attention=True, samples=9), increment_total=0.5, increment_total_se=0.01)
    (said,) = [text for text in map(plain, findings(shown)) if "gate" in text]
    assert said.startswith("54 of 54 steps have a gate")
    assert "TNS changes when a constant gate is folded into the weights" in said
    assert said.endswith("Folding keeps the total of increments, 0.500 ± 0.010.")
    older = [plain(text) for text in findings(replace(shown, increment_total=None))]
    assert not any("Folding keeps" in text for text in older)
    assert not any("gate" in plain(text) for text in findings(view(samples=9)))


@pytest.mark.parametrize("change", [{"tns": float("nan")}, {}])
def test_a_network_without_counted_steps_has_no_total(change):
    shown = view(((1, (8,)),), samples=3, labels=None)
    assert "no total" in plain(headline(replace(shown, **change)))


def compared(first, second):
    views = (
        replace(view(samples=5, title=title), tns=tns, tns_se=error)
        for title, (tns, error) in (("before", first), ("after", second))
    )
    (sentence,) = comparison(list(views))
    return plain(sentence)


def test_a_comparison_gives_the_ratio_where_the_errors_allow_it():
    assert compared((0.5, 0.01), (1.5, 0.02)) == (
        "Total neural stiffness (TNS) is 1.500 ± 0.020 in “after”, against 0.500 ± 0.010 in "
        "“before”: 3.00 times as much."
    )
    assert compared((0.5, 0.1), (0.6, 0.1)).endswith("differ by less than 1.96 standard errors.")
    assert compared((0.5, None), (0.6, None)).endswith("in “before”.")


def test_totals_that_rest_on_nothing_are_not_compared():
    first, second = view(samples=5), replace(view(samples=5), tns=0.0, tns_steps=0)
    assert comparison([first, second]) == []


def test_many_networks_are_one_sentence_and_a_table_from_the_stiffest_down():
    totals = (0.5, 1.5, 0.25, 1.0, 0.0)
    views = [
        replace(view(samples=5, title=f"net {i}"), tns=tns, tns_se=0.01, tns_steps=2 if tns else 0)
        for i, tns in enumerate(totals)
    ]
    assert len(comparison(views[:3])) == 2
    (sentence,) = map(plain, comparison(views))
    assert sentence == (
        "Total neural stiffness (TNS) of 4 networks goes from 0.250 ± 0.010 in “net 2” to "
        "1.500 ± 0.010 in “net 1”: 6.00 times as much."
    )
    rows = totals_table(views).rows
    assert [row.cells[0].text for row in rows] == ["net 1", "net 3", "net 0", "net 2", "net 4"]
    assert [row.cells[1].value for row in rows] == [1.5, 1.0, 0.5, 0.25, None]
    assert comparison([view(((1, (8,)),), samples=3, labels=None)] * 5) == []


def test_with_gates_the_increments_totals_are_compared_too():
    gated, folded = view(samples=5, attention=True), view(samples=5)
    totals = {"increment_total": 0.25, "increment_total_se": None}
    (sentence,) = comparison([replace(gated, **totals), replace(folded, **totals)])
    assert plain(sentence).endswith("the total is 0.250 against 0.250.")


def related(steps, samples, loss, nsi=None, *, seed=0):
    """Return the sentences on a network whose steps have random indices and the given losses."""
    rng = np.random.default_rng(seed)
    nsi = np.exp(rng.standard_normal((samples, steps))) if nsi is None else nsi
    base = view(((steps, (8,)),), samples=6, labels=None, relations=False)
    by_step = dict(zip(base.steps["step"], nsi.T, strict=True))
    frame = relate(by_step, {"loss": loss})
    return [plain(s) for s in findings(replace(base, relations=frame)) if "goes with" in plain(s)]


@pytest.mark.parametrize(
    ("steps", "samples", "trials"),
    [(1, 20, 100), (3, 10, 60), (2, 9, 60), (16, 20, 30), (8, 100, 30), (3, 7, 20)],
)
def test_shuffled_losses_are_no_finding_but_for_one_in_twenty(steps, samples, trials):
    """The steps' indices depend on each other, as a network's do, and the losses on nothing."""
    wrong = 0
    for seed in range(trials):
        rng = np.random.default_rng([steps, samples, seed])
        nsi = np.exp(rng.standard_normal((samples, steps)) + rng.standard_normal((samples, 1)))
        wrong += bool(related(steps, samples, rng.permutation(rng.gamma(0.3, size=samples)), nsi))
    assert stats.binomtest(wrong, trials, ALPHA, alternative="greater").pvalue > 1e-3


@pytest.mark.parametrize(("sign", "word"), [(-1, "smaller"), (1, "larger")])
@pytest.mark.parametrize(("steps", "samples"), [(1, 20), (16, 40), (16, 300)])
def test_a_strong_relation_is_found_and_its_step_named(sign, word, steps, samples):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        nsi = np.exp(rng.standard_normal((samples, steps)))
        loss = sign * np.log(nsi[:, -1]) + 0.5 * rng.standard_normal(samples)
        (said,) = related(steps, samples, loss, nsi)
        rank = f"{stats.spearmanr(nsi[:, -1], loss).statistic:.2f}".replace("-", "−")
        assert said.startswith(
            f"A larger NSI at layer1.{steps - 1} goes with a {word} loss: their rank correlation "
            f"over {samples} images is {rank} (p "
        )
        assert said.endswith(f"Holm's correction for {steps} step{'s' * (steps > 1)}).")


def test_a_weak_relation_is_not_put_into_words_however_certain():
    rng = np.random.default_rng(0)
    nsi = np.exp(rng.standard_normal((3000, 1)))
    loss = 0.1 * nsi[:, 0] + rng.standard_normal(3000)
    assert stats.spearmanr(nsi[:, 0], loss).pvalue < 1e-4
    assert related(1, 3000, loss, nsi) == []


def test_where_every_branch_is_zero_that_is_all_that_is_said():
    silent = known([0.0, 0.0, 0.0])
    assert "Every branch is zero" in plain(headline(silent))
    assert findings(silent) == []


def test_where_each_stage_has_one_counted_step_tns_is_zero_for_that_reason():
    assert "no stage has more than one step" in plain(headline(known([0.2, 0.9], [False, True])))
