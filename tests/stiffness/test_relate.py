"""Correlations: against SciPy directly, against hand formulas, and what has none."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import stats

from reference import stiffness as reference
from stiffnet.errors import NonFiniteError, StepError
from stiffnet.stiffness.relate import holm, rank_models, relate
from tolerances import RTOL

COLUMNS = [
    "step", "target", "samples", "pearson", "pearson_p", "spearman", "spearman_p",
    "kendall", "kendall_p", "note", "pearson_holm", "spearman_holm", "kendall_holm",
]  # fmt: skip


def some_data(samples=40):
    rng = np.random.default_rng(0)
    loss = rng.exponential(size=samples)
    values = {f"layer{i}": rng.lognormal(size=samples) + i * loss for i in range(3)}
    return values, {"loss": loss, "accuracy": (loss < 0.7).astype(int)}


def test_agrees_with_scipy_step_by_step_and_pooled():
    values, targets = some_data()
    frame = relate(values, targets).set_index(["step", "target"])
    pooled = np.concatenate(list(values.values()))
    pairs = {(s, t): (values[s], targets[t]) for s in values for t in targets}
    pairs |= {("all", t): (pooled, np.tile(targets[t], 3)) for t in targets}
    assert list(frame.index) == list(pairs)
    for key, (x, y) in pairs.items():
        row = frame.loc[key]
        for kind, function in (
            ("pearson", stats.pearsonr),
            ("spearman", stats.spearmanr),
            ("kendall", stats.kendalltau),
        ):
            expected = function(x, y)
            assert row[kind] == pytest.approx(expected.statistic, rel=RTOL["float64"])
            assert row[f"{kind}_p"] == pytest.approx(expected.pvalue, rel=RTOL["float64"])
        assert row["samples"] == len(x)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=12))
@settings(derandomize=True, deadline=None)
def test_agrees_with_the_formulas(pairs):
    x, y = (np.array(c, dtype=float) for c in zip(*pairs, strict=True))
    (row,) = relate({"s": x}, {"t": y}).to_dict("records")
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert "constant" in row["note"]
        return
    ranks = stats.rankdata(x), stats.rankdata(y)
    assert row["pearson"] == pytest.approx(reference.pearson(x, y), abs=RTOL["float64"])
    assert row["spearman"] == pytest.approx(reference.pearson(*ranks), abs=RTOL["float64"])
    assert row["kendall"] == pytest.approx(reference.kendall(x, y), abs=RTOL["float64"])
    assert all(0 <= row[f"{kind}_p"] <= 1 for kind in ("pearson", "spearman", "kendall"))


def test_a_line_correlates_perfectly_and_its_mirror_image_the_other_way():
    x = np.arange(20.0)
    (row,) = relate({"s": x}, {"t": 3 - 2 * x}).to_dict("records")
    for kind in ("pearson", "spearman", "kendall"):
        assert row[kind] == pytest.approx(-1.0)


def test_ranks_do_not_see_a_monotone_map():
    values, targets = some_data()
    frame = relate(values, targets)
    warped = relate({name: np.log(column) for name, column in values.items()}, targets)
    for kind in ("spearman", "kendall"):
        assert frame[kind].tolist() == warped[kind].tolist()


def test_has_the_layout_of_the_papers_tables():
    values, targets = some_data()
    frame = relate(values, targets)
    assert list(frame.columns) == COLUMNS
    assert frame["step"].tolist()[-2:] == ["all", "all"]
    assert frame["note"].tolist()[:-2] == [""] * 6
    assert "p is too small" in frame["note"].iloc[-1]
    assert "all" not in relate({"one": values["layer0"]}, targets)["step"].tolist()


def test_p_values_are_corrected_for_the_number_of_steps_and_not_of_targets():
    values, targets = some_data()
    frame = relate(values, targets)
    steps = frame[frame["step"] != "all"]
    for kind in ("pearson", "spearman", "kendall"):
        for _, rows in steps.groupby("target"):
            p = rows[f"{kind}_p"].astype(float).to_numpy()
            expected = multitest_holm(p)
            np.testing.assert_allclose(rows[f"{kind}_holm"].astype(float), expected, rtol=1e-12)
        assert frame.loc[frame["step"] == "all", f"{kind}_holm"].isna().all()


def multitest_holm(p):
    """Holm's method as it is written down: sort, multiply, never decrease, at most one."""
    order = np.argsort(p)
    raised = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)).clip(max=1.0)
    back = np.empty_like(raised)
    back[order] = raised
    return back


def test_a_test_that_was_not_made_does_not_count():
    assert holm([None, 0.04, None]) == [None, 0.04, None]
    assert holm([0.04, 0.5]) == [0.08, 0.5]
    assert holm([]) == []


def test_a_constant_column_gives_none_and_a_note():
    values, targets = some_data()
    frame = relate(values | {"flat": np.full(40, 0.1)}, targets | {"right": np.ones(40)})
    rows = {(row["step"], row["target"]): row for row in frame.to_dict("records")}
    assert rows["flat", "loss"]["note"] == "constant value"
    assert rows["layer0", "right"]["note"] == "constant target"
    assert rows["flat", "right"]["note"] == "constant value and target"
    for key in (("flat", "loss"), ("layer0", "right"), ("all", "right")):
        assert all(rows[key][name] is None for name in COLUMNS[3:9])
    assert rows["layer0", "loss"]["pearson"] is not None


def test_a_nearly_constant_column_gives_a_note_and_no_warning():
    x = 1e6 + np.arange(10) * 1e-9
    (row,) = relate({"s": x}, {"t": np.arange(10.0)}).to_dict("records")
    assert "nearly constant" in row["note"]


def test_two_samples_give_none_and_a_note():
    (row,) = relate({"s": [1.0, 2.0]}, {"t": [1.0, 2.0]}).to_dict("records")
    assert row["pearson"] is None
    assert row["note"] == "fewer than 3 samples"


def test_takes_tensors():
    values, targets = some_data()
    tensors = {name: torch.from_numpy(column) for name, column in values.items()}
    pd.testing.assert_frame_equal(relate(tensors, targets), relate(values, targets))


@pytest.mark.parametrize(
    ("values", "targets", "error", "message"),
    [
        ({}, {"t": [1.0]}, StepError, "must be there"),
        ({"s": [1.0]}, {}, StepError, "must be there"),
        ({"s": [1.0, 2.0]}, {"t": [1.0]}, StepError, "'s': 2, 't': 1"),
        ({"all": [1.0]}, {"t": [1.0]}, StepError, "rename"),
        ({"s": [[1.0]]}, {"t": [1.0]}, StepError, "'s' has shape"),
        ({"s": [1.0, math.nan]}, {"t": [1.0, 2.0]}, NonFiniteError, "'s' .* sample 1 .* leave"),
        ({"s": [1.0, 1.0]}, {"t": [math.inf, 2.0]}, NonFiniteError, "'t' .* sample 0"),
    ],
)
def test_refuses_what_cannot_be_related(values, targets, error, message):
    with pytest.raises(error, match=message):
        relate(values, targets)


def test_ranks_models():
    tns, accuracy = [1.2, 0.7, 3.1, 2.0, 5.0], [76.1, 77.0, 74.2, 75.0, 74.5]
    ranking = rank_models(tns, accuracy, names=list("abcde"))
    assert ranking.names == tuple("abcde")
    # Ranks 2 1 4 3 5 against 4 5 1 3 2: Σd² = 4 + 16 + 9 + 0 + 9 = 38, 1 - 6·38/120; one of ten
    # pairs (the third model and the fifth) goes up in both.
    assert ranking.spearman == pytest.approx(-0.9)
    assert ranking.kendall == pytest.approx(-0.8)
    assert ranking.kendall_p == pytest.approx(stats.kendalltau(tns, accuracy).pvalue)


def test_the_p_value_of_few_models_counts_all_orders():
    """Of the n! orders exactly two are perfect, so p = 2/n!, where the t-distribution says 0."""
    for count in range(3, 9):
        ranking = rank_models(np.arange(count), np.arange(count))
        assert ranking.spearman_p == 2 / math.factorial(count)


def test_models_that_agree_have_no_order():
    ranking = rank_models([1.0, 2.0, 3.0], [70.0, 70.0, 70.0])
    assert ranking.spearman is None
    assert ranking.kendall_p is None
    assert ranking.note == "constant target"


def test_refuses_to_rank_two_models():
    with pytest.raises(StepError, match="at least 3 models"):
        rank_models([1.0, 2.0], [1.0, 2.0])
    with pytest.raises(StepError, match="2 accuracies"):
        rank_models([1.0, 2.0, 3.0], [1.0, 2.0])
