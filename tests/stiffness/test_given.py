"""Odd numbers, wherever numbers are taken: each gives what float64 gives, or is refused in words.

The values are small whole numbers, which every dtype here holds exactly.
"""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from stiffnet.errors import NonFiniteError, StepError
from stiffnet.stiffness.metric import StiffnessMetric
from stiffnet.stiffness.relate import rank_models, relate
from stiffnet.stiffness.total import delta, proportion, tns
from tolerances import RTOL

ROWS = [[1.0, 1.0, 4.0], [1.0, 2.0, 3.0], [2.0, 5.0, 1.0], [1.0, 1.0, 1.0]]
STAGES = [0, 0, 0]
LOSS = [1.0, 3.0, 2.0, 4.0]


def measured(rows):
    metric = StiffnessMetric(STAGES, [True] * 3)
    metric.update(rows)
    summary = metric.summary()
    return [float(metric.compute()), *summary.nsi_mean.tolist(), summary.tns_se]


def related(column):
    row = relate({"s": column}, {"t": LOSS}).iloc[0]
    return [row[kind] for kind in ("pearson", "spearman", "kendall", "pearson_p")]


def ranked(column):
    ranking = rank_models(column, LOSS)
    return [ranking.spearman, ranking.spearman_p, ranking.kendall, ranking.kendall_p]


TAKERS = {  # what takes numbers, and whether it takes a table of them or a column
    "tns": (lambda rows: np.asarray(tns(rows, STAGES)).tolist(), True),
    "delta": (lambda rows: delta(rows, STAGES, 0.5, [0.0, 2.0]).value.tolist(), True),
    "proportion": (lambda rows: proportion(rows, STAGES, 0.5, [0.0, 2.0]).value.tolist(), True),
    "metric": (measured, True),
    "relate": (related, False),
    "rank_models": (ranked, False),
}
SAME = {
    "float32": lambda x: torch.tensor(x),
    "float16": lambda x: torch.tensor(x).half(),
    "bfloat16": lambda x: torch.tensor(x).bfloat16(),
    "int64": lambda x: torch.tensor(x).long(),
    "uint8": lambda x: torch.tensor(x).to(torch.uint8),
    "with gradient": lambda x: torch.tensor(x, requires_grad=True),
    "every second": lambda x: torch.tensor(x).repeat_interleave(2, dim=0)[::2],
    "column by column": lambda x: torch.from_numpy(np.asfortranarray(x)),
    "list": lambda x: x,
    "tuple": tuple,
    "int array": lambda x: np.array(x, dtype=np.int32),
    "half array": lambda x: np.array(x, dtype=np.float16),
    "objects": lambda x: np.array(x, dtype=object),
    "other byte order": lambda x: np.array(x, dtype=">f8"),
    "read only": lambda x: np.broadcast_to(np.array(x), np.shape(x)),
    "backwards twice": lambda x: np.array(x)[::-1].copy()[::-1],
    "nothing masked": lambda x: np.ma.masked_array(x, mask=False),
    "table": lambda x: pd.DataFrame(x) if np.ndim(x) == 2 else pd.Series(x, index=[9, 8, 7, 6]),
}
REFUSED = {
    "complex tensor": (lambda x: torch.tensor(x).to(torch.complex64), "complex64"),
    "complex array": (lambda x: np.array(x) + 1j, "complex128"),
    "masked": (lambda x: np.ma.masked_equal(x, 1.0), "MaskedArray"),
    "words": (lambda x: np.array(x).astype(str), "<U"),
    "dates": (lambda x: np.array(x).astype("datetime64[s]"), "datetime64"),
    "ragged": (lambda x: [*x[:-1], [1.0, [2.0]]], "do not make an array"),
    "no numbers": (lambda x: torch.tensor(x, device="meta"), "on meta"),
    "sparse": (lambda x: torch.tensor(x).to_sparse(), "sparse_coo"),
    "a set": (lambda x: {1.0, 2.0}, "set"),
}


def given_to(taker):
    take, table = TAKERS[taker]
    return take, ROWS if table else [row[1] for row in ROWS]


@pytest.mark.parametrize("kind", SAME)
@pytest.mark.parametrize("taker", TAKERS)
def test_another_form_of_the_same_numbers_changes_nothing(taker, kind):
    take, numbers = given_to(taker)
    expected = take(torch.tensor(numbers, dtype=torch.float64))
    assert np.isfinite(expected).all()
    assert take(SAME[kind](numbers)) == expected


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("taker", TAKERS)
def test_what_is_not_real_numbers_is_refused_in_words(taker, kind):
    take, numbers = given_to(taker)
    change, word = REFUSED[kind]
    with pytest.raises(StepError, match=rf"(?s){word}.*give real numbers"):
        take(change(numbers))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
@pytest.mark.parametrize("taker", TAKERS)
def test_what_is_not_finite_is_named(taker, value):
    take, numbers = given_to(taker)
    bad = np.array(numbers, dtype=object)
    bad[2] = value
    with pytest.raises(NonFiniteError, match="is NaN or infinite for sample 2"):
        take(bad)


@pytest.mark.parametrize("taker", [name for name, (_, table) in TAKERS.items() if table])
def test_indices_that_float64_cannot_add_up_are_refused(taker):
    take, numbers = given_to(taker)
    assert np.isfinite(take(np.array(numbers) * 1e139)).all()
    with pytest.raises(StepError, match=r"above 1e\+140 for samples 0 and 2 at step"):
        take([[1e141, 1.0, 1.0], [1.0, 1.0, 1.0], [2e307, 2e307, 2e307]])


@pytest.mark.parametrize("scale", [2.0**1021, 2.0**-1074, 2.0**-500])
def test_a_correlation_does_not_depend_on_the_scale(scale):
    """Up to the largest and down to the smallest float64, by powers of two, which are exact."""
    column = [1.0, 2.0, 4.0, 6.0]
    assert related(np.array(column) * scale) == pytest.approx(related(column), rel=RTOL["float64"])


def test_a_value_and_a_target_of_one_name_must_be_of_one_length():
    with pytest.raises(StepError, match="'y': 4, 'y': 3; give each column"):
        relate({"y": [1.0, 2.0, 3.0, 5.0]}, {"y": [1.0, 2.0, 3.0]})
