from dataclasses import replace

import numpy as np
import pytest

from report.cases import view
from stiffnet.report.findings import (
    at_thresholds,
    comparison,
    findings,
    headline,
    plain,
    stiffest_steps,
)
from stiffnet.report.text import percent


def known(nsi, counted=None):
    """Return a view whose steps have the given mean NSI."""
    base = view(((len(nsi), (8,)),), samples=6, labels=None, first_counted=True)
    counted = [True] * len(nsi) if counted is None else counted
    return replace(base, steps=base.steps.assign(nsi_mean=nsi, counted=counted))


def test_the_stiffest_step_is_named_with_its_index():
    (first, *_) = findings(known([0.2, 0.9, 0.4]))
    assert plain(first) == (
        "The state moves most at layer1.1 (NSI 0.900, 1.8 times the mean of its stage), "
        "then at layer1.2 (0.400) and at layer1.0 (0.200)."
    )


def test_a_step_that_is_not_counted_is_not_the_stiffest():
    top = stiffest_steps(known([5.0, 0.2, 0.3], [False, True, True]), most=1)
    assert [row["step"] for row in top] == ["layer1.2"]


def test_steps_that_barely_move_the_state_are_counted_from_the_calmest():
    sentence = plain(findings(known([0.5, 0.09, 0.01, 0.05, 0.02]))[1])
    assert sentence.startswith("4 of 5 steps barely move the state (NSI below 0.1): ")
    assert sentence.endswith(": layer1.2, layer1.4, layer1.3 and 1 more.")


def test_where_none_barely_moves_the_state_the_calmest_is_named():
    assert "the calmest, layer1.0, has NSI 0.200" in plain(findings(known([0.2, 0.9]))[1])


def test_shares_are_read_off_the_surfaces_at_twice_the_mean():
    shown = view(samples=40)
    i, j = int(np.flatnonzero(np.isclose(shown.m1, 1))[0]), 0
    assert at_thresholds(shown, shown.delta, 1.0, 0.0) == shown.delta[i, j]
    sentences = [plain(sentence) for sentence in findings(shown)]
    assert sentences[2].startswith(percent(shown.delta[i, j]) + " of the images")
    assert percent(shown.proportion[i, j]) in sentences[3]


def test_without_that_point_on_the_grid_nothing_is_said_of_it():
    shown = view(relations=False, samples=10)
    assert len(findings(replace(shown, m1=shown.m1 + 0.013))) == 2


def test_the_headline_has_the_total_and_its_error():
    said = plain(headline(replace(view(samples=10), tns=1.3124, tns_se=0.0412)))
    assert "1.312 ± 0.041, with its standard error over 10 images" in said
    assert "standard error" not in plain(headline(replace(view(samples=10), tns_se=None)))


@pytest.mark.parametrize("change", [{"tns": float("nan")}, {}])
def test_a_network_without_counted_steps_has_no_total(change):
    shown = view(((1, (8,)),), samples=3, labels=None)
    assert "no total" in plain(headline(replace(shown, **change)))


def test_a_comparison_gives_the_ratio():
    first, second = (replace(view(samples=5, title=t), tns=v, tns_se=None) for t, v in AB)
    (sentence,) = comparison([first, second])
    assert plain(sentence) == (
        "Total neural stiffness (TNS) is 1.50 in “after”, against 0.500 in “before”: "
        "3.00 times as much."
    )


AB = (("before", 0.5), ("after", 1.5))


@pytest.mark.parametrize(("spearman", "word"), [(-0.69, "smaller"), (0.4, "larger")])
def test_the_step_that_goes_with_the_loss_is_named(spearman, word):
    base = view(relations=True)
    rows = base.relations.assign(spearman=0.01)
    last = base.steps["step"].iloc[-1]
    rows.loc[(rows["step"] == last) & (rows["target"] == "loss"), "spearman"] = spearman
    said = plain(findings(replace(base, relations=rows))[-1])
    number = f"{spearman:.2f}".replace("-", "−")
    assert said == (
        f"A larger NSI at {last} goes with a {word} loss: their rank correlation over images is "
        f"{number}."
    )


def test_a_weak_relation_is_not_put_into_words():
    base = view(relations=True)
    quiet = replace(base, relations=base.relations.assign(spearman=0.1))
    assert not any("goes with" in plain(sentence) for sentence in findings(quiet))


def test_where_every_branch_is_zero_that_is_all_that_is_said():
    silent = known([0.0, 0.0, 0.0])
    assert "Every branch is zero" in plain(headline(silent))
    assert findings(silent) == []


def test_where_each_stage_has_one_counted_step_tns_is_zero_for_that_reason():
    assert "no stage has more than one step" in plain(headline(known([0.2, 0.9], [False, True])))
