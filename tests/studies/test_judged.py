"""The comparisons of a study: what is left out is said, and a study says what refutes it."""

import pytest

from stiffnet.results.study import Line
from stiffnet.studies.judged import comparisons, verdict_of
from stiffnet.studies.study import Study, equal_within, higher, rank_correlation


def line(row, seed, error="", **values):
    return Line("made up", row, seed, f"{row}-{seed}", values, error)


def judged(judges, lines):
    study = Study(
        name="asr-fake",
        locator="Table 0",
        claim="",
        rows={},
        metric="accuracy",
        unit="",
        judges=judges,
        scales={},
    )
    return comparisons(study, lines, ())


LOW = [line("low", seed, accuracy=1.0 + 0.1 * seed) for seed in range(4)]
HIGH = [line("high", seed, accuracy=2.0 + 0.12 * seed) for seed in range(4)]


def test_a_seed_without_a_value_is_named():
    [whole] = judged((higher("high", "low"),), [*LOW, *HIGH])
    [found] = judged((higher("high", "low"),), [*LOW, *HIGH[:3], line("high", 3)])
    assert (whole.seeds, found.seeds) == (4, 3)
    assert found.verdict == "held"
    assert found.remark == "There is no value for seed 3."
    assert found.why.endswith(f" {found.remark}")
    assert "no value" not in whole.why
    assert whole.remark == ""


@pytest.mark.parametrize(
    "judge", [higher("high", "low"), equal_within("high", "low", 5.0), higher("high", 0.0)]
)
def test_a_row_that_failed_for_a_seed_decides_nothing(judge):
    [whole] = judged((judge,), [*LOW, *HIGH])
    [found] = judged((judge,), [*LOW, *HIGH[:3], line("high", 3, "it diverged")])
    assert (whole.verdict, found.verdict) == ("held", "undecided")
    assert found.why == "high failed for seed 3; a comparison needs every seed."


def test_a_failure_of_a_row_that_is_not_compared_does_not_matter():
    [found] = judged((higher("high", "low"),), [*LOW, *HIGH, line("third", 0, "it diverged")])
    assert found.verdict == "held"


def test_ranks_name_a_network_without_a_value_and_decide_nothing_where_one_failed():
    networks = [
        line(f"net {i}", seed, tns=i + 0.1 * seed, accuracy=90 + i)
        for i in range(6)
        for seed in range(3)
    ]
    judge = (rank_correlation("tns", "accuracy"),)
    [found] = judged(judge, [*networks, *(line("net 6", seed, accuracy=1.0) for seed in range(3))])
    assert found.verdict == "held"
    assert found.why.endswith(" There is no value for net 6.")
    [found] = judged(judge, [*networks[:-1], line("net 5", 2, "it diverged")])
    assert found.verdict == "undecided"
    assert found.why.startswith("net 5 failed for seed 2;")


def test_a_refuted_study_says_which_comparison_refutes_it_most_surely():
    judges = (higher("high", "low"), higher("low", "high"), higher("low", 10.0))
    made = judged(judges, [*LOW, *HIGH])
    assert [each.verdict for each in made] == ["held", "refuted", "refuted"]
    found = verdict_of(made)
    assert found.verdict == "refuted"
    surest = min(made[1:], key=lambda each: each.p)
    assert found.why == (
        f"Of 3 comparisons: 1 held, 2 refuted. Refuted is “{surest.sentence}”: {surest.why}"
    )
    assert verdict_of(made[:1]).why == made[0].why


@pytest.mark.parametrize(
    ("helped", "verdict"), [(1.0, "held"), (0.0, "undecided"), (-1.0, "undecided")]
)
@pytest.mark.parametrize("raised", [1.0, -1.0])
def test_nothing_is_claimed_of_rows_for_which_the_premise_did_not_hold(helped, verdict, raised):
    lines = [
        line(row, seed, accuracy=90 + by * helped + 0.1 * seed**i, tns=by * raised + 0.1 * seed**i)
        for i, (row, by) in enumerate((("plain", 0.0), ("trick", 1.0)), start=1)
        for seed in range(4)
    ]
    judge = higher("trick", "plain", "tns", premise=higher("trick", "plain", metric="accuracy"))
    [found] = judged((judge,), lines)
    [alone] = judged((higher("trick", "plain", "tns"),), lines)
    assert alone.verdict == ("held" if raised > 0 else "refuted")
    assert found.verdict == (alone.verdict if verdict == "held" else "undecided")
    assert (found.estimate, found.low, found.p) == (alone.estimate, alone.low, alone.p)
    assert ("“accuracy: trick above plain” holds" in found.remark) is (verdict != "held")


def test_a_verdict_names_the_rows_that_were_not_run():
    made = judged((higher("high", "low"),), [*LOW, *HIGH])
    found = verdict_of(made, ["asr:ie", "asr:ie, folded"])
    assert found.verdict == "held"
    assert found.why == (
        f"{made[0].why} Not run at this scale, and so not judged: “asr:ie” and “asr:ie, folded”."
    )
