"""The streaming metric: one number for any batching and ranks, in float64, never saturated."""

import copy
import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from reference import stiffness as reference
from stiffnet.errors import NonFiniteError, StepError
from stiffnet.stiffness.metric import StiffnessMetric
from stiffnet.stiffness.summary import QUANTILES
from tolerances import RTOL

STAGES = [0, 0, 0, 4, 4, 4]
COUNTED = [False, True, True, False, True, True]
COUNTED_STAGES = [0, 0, 4, 4]


def some_indices(samples=23, seed=0):
    rng = np.random.default_rng(seed)
    nsi = torch.from_numpy(rng.lognormal(sigma=0.7, size=(samples, len(STAGES))))
    return nsi, nsi * torch.from_numpy(rng.uniform(size=nsi.shape))


def filled(nsi, increment=None, sizes=None):
    metric = StiffnessMetric(STAGES, COUNTED)
    parts = [len(nsi)] if sizes is None else sizes
    others = [None] * len(parts) if increment is None else increment.split(parts)
    for part, other in zip(nsi.split(parts), others, strict=True):
        metric.update(part, other)
    return metric


def assert_same(first, second, rtol):
    for name, one, two in zip(first._fields, first, second, strict=True):
        np.testing.assert_allclose(one, two, rtol=rtol, atol=0.0, err_msg=name)


def test_agrees_with_the_definitions():
    nsi, increment = some_indices()
    summary = filled(nsi, increment).summary()
    x, y, counted = nsi.numpy(), increment.numpy(), nsi.numpy()[:, COUNTED]
    total = reference.tns(counted, COUNTED_STAGES)
    moved = reference.tns(y[:, COUNTED], COUNTED_STAGES)
    per_stage = reference.stage_tns(counted, COUNTED_STAGES)
    assert summary.samples == 23
    assert summary.stages == (0, 4)
    for actual, expected in (
        (summary.nsi_mean, x.mean(axis=0)),
        (summary.nsi_std, x.std(axis=0, ddof=1)),
        (summary.nsi_min, x.min(axis=0)),
        (summary.nsi_max, x.max(axis=0)),
        (summary.increment_mean, y.mean(axis=0)),
        (summary.increment_std, y.std(axis=0, ddof=1)),
        (summary.tns, total.mean()),
        (summary.tns_se, reference.standard_error(total)),
        (summary.increment_tns, moved.mean()),
        (summary.increment_tns_se, reference.standard_error(moved)),
        (summary.stage_tns, per_stage.mean(axis=0)),
        (summary.stage_tns_se, reference.standard_error(per_stage)),
    ):
        np.testing.assert_allclose(actual, expected, rtol=RTOL["float64"], atol=0.0)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.booleans())
@settings(derandomize=True, deadline=None, max_examples=25)
def test_does_not_depend_on_batching(sizes, forward):
    nsi, increment = some_indices(samples=max(sum(sizes), 1))
    sizes[-1] += len(nsi) - sum(sizes)
    whole = filled(nsi, increment).summary()
    if forward:  # calling the metric, as Lightning does, merges a batch's own state
        metric = StiffnessMetric(STAGES, COUNTED)
        for part, other in zip(nsi.split(sizes), increment.split(sizes), strict=True):
            if len(part):
                total = reference.tns(part.numpy()[:, COUNTED], COUNTED_STAGES)
                assert float(metric(part, other)) == pytest.approx(total.mean(), rel=1e-12)
    else:
        metric = filled(nsi, increment, sizes)
    if len(nsi) == 1:
        assert whole.tns_se is None
        assert whole.nsi_std is None
        assert metric.summary().tns == whole.tns
    else:
        assert_same(metric.summary(), whole, RTOL["merge"])


@given(st.lists(st.floats(1e-7, 1e7) | st.sampled_from([1e-3, 1.0, 10.0]), min_size=1, max_size=60))
@settings(derandomize=True, deadline=None)
def test_quantiles_are_order_statistics_to_their_resolution(values):
    metric = StiffnessMetric([0], [True])
    metric.update(torch.tensor(values, dtype=torch.float64)[:, None])
    expected = np.quantile(values, QUANTILES, method="inverted_cdf")
    quantiles = metric.summary().nsi_quantiles
    np.testing.assert_allclose(quantiles[:, 0], expected, rtol=RTOL["quantile"], atol=0.0)


def test_quantiles_beyond_the_bins_are_the_extremes():
    metric = StiffnessMetric([0], [True])
    metric.update(torch.tensor([[0.0], [1e-12], [1.0], [1e11], [1e12]], dtype=torch.float64))
    quantiles = metric.summary().nsi_quantiles[:, 0]
    assert quantiles[[0, 1, 3, 4]].tolist() == [0.0, 0.0, 1e12, 1e12]
    assert quantiles[2] == pytest.approx(1.0, rel=RTOL["quantile"])
    assert int(metric.histogram.sum()) == 5


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e-5, 12345.678])
def test_a_constant_step_has_no_spread_whatever_cancels(value):
    metric = StiffnessMetric([0, 0, 0], [False, True, True])
    for _ in range(50):
        metric.update(torch.full((77, 3), value, dtype=torch.float64))
    summary = metric.summary()
    assert summary.nsi_std.tolist() == [0.0] * 3
    assert summary.nsi_mean.tolist() == [value] * 3
    assert summary.nsi_quantiles.tolist() == [[value] * 3] * 5
    for spread in (summary.increment_std, summary.tns_se, summary.stage_tns_se):
        assert np.isfinite(spread).all()  # no root of a negative difference


def test_a_spread_of_a_thousandth_keeps_its_digits():
    x = 1 + 1e-3 * torch.randn(5000, 1, generator=torch.Generator().manual_seed(0)).double()
    metric = StiffnessMetric([0], [True])
    for part in x.split(64):
        metric.update(part)
    expected = x.std(dim=0).numpy()
    np.testing.assert_allclose(metric.summary().nsi_std, expected, rtol=RTOL["merge"])


def test_counts_and_sums_do_not_saturate():
    """A float32 count would stop at 2**24, and a bfloat16 sum at a few hundred."""
    metric = StiffnessMetric([0], [True])
    metric.samples += 2**24
    metric.nsi_sum += 2.0**24
    metric.nsi_squares += 2.0**24
    metric.histogram[0, 2049] += 2**24  # the bin that starts at 1
    metric.nsi_min[:] = metric.nsi_max[:] = 1.0
    for _ in range(10):
        metric.update(torch.ones(100, 1, dtype=torch.bfloat16))
    summary = metric.summary()
    assert summary.samples == 2**24 + 1000
    assert float(metric.nsi_sum) == 2**24 + 1000
    assert int(metric.histogram.max()) == 2**24 + 1000
    assert summary.nsi_mean.tolist() == [1.0]


@pytest.mark.parametrize(
    "convert",
    [
        lambda m: m.half(),
        lambda m: m.float(),
        lambda m: m.bfloat16(),
        lambda m: m.to(torch.float16),
        lambda m: torch.nn.ModuleList([m]).half()[0],
        lambda m: torch.nn.ModuleList([m]).to("cpu", torch.bfloat16)[0],
        lambda m: m.set_dtype(torch.float16),
        copy.deepcopy,
    ],
)
def test_stays_in_float64_when_a_model_changes_its_dtype(convert):
    nsi, increment = some_indices()
    metric = convert(filled(nsi[:10], increment[:10]))
    metric.update(nsi[10:], increment[10:])
    assert metric.nsi_sum.dtype == metric.tns_squares.dtype == torch.float64
    assert metric.histogram.dtype == metric.samples.dtype == torch.int64
    assert_same(metric.summary(), filled(nsi, increment).summary(), RTOL["merge"])
    metric.reset()
    assert metric.nsi_sum.dtype == torch.float64


def test_the_increment_is_the_index_where_there_is_no_gate():
    summary = filled(some_indices()[0]).summary()
    assert summary.increment_mean.tolist() == pytest.approx(summary.nsi_mean.tolist(), rel=1e-15)


def test_a_network_without_counted_steps_has_indices_but_no_total():
    metric = StiffnessMetric([0, 1], [False, False])
    metric.update(torch.ones(3, 2))
    summary = metric.summary()
    assert summary.tns is None
    assert summary.tns_se is None
    assert summary.increment_tns is None
    assert summary.increment_tns_se is None
    assert (summary.counted_steps, summary.tns_steps) == (0, 0)
    assert summary.stage_tns.shape == (0,)
    assert summary.nsi_mean.tolist() == [1.0, 1.0]


def test_nothing_measured_is_an_error_and_an_empty_batch_is_not():
    metric = StiffnessMetric(STAGES, COUNTED)
    with pytest.raises(StepError, match=r"Nothing was measured.*call `update`"):
        metric.summary()
    metric.update(torch.empty(0, len(STAGES)))
    with pytest.raises(StepError, match="Nothing was measured"):
        metric.summary()
    metric.update(torch.ones(2, len(STAGES)))
    assert metric.summary().samples == 2


@pytest.mark.parametrize(
    ("nsi", "increment", "error", "message"),
    [
        (torch.ones(2, 5), None, StepError, r"`nsi` has shape \(2, 5\); .*\(samples, 6\)"),
        (torch.ones(6), None, StepError, r"shape \(6,\)"),
        (torch.ones(2, 6), torch.ones(3, 6), StepError, "2 samples but `increment` 3"),
        (torch.ones(2, 6).index_fill(0, torch.tensor(1), math.nan), None, NonFiniteError,
         "`nsi` is NaN or infinite for sample 1 at step 0"),
        (torch.ones(2, 6), torch.full((2, 6), math.inf), NonFiniteError, "`increment` is NaN or"),
        (-torch.ones(2, 6), None, StepError, "`nsi` is negative for samples 0 and 1"),
    ],
)  # fmt: skip
def test_a_bad_batch_is_refused_before_anything_changes(nsi, increment, error, message):
    metric = filled(*some_indices())
    before = metric.summary()
    with pytest.raises(error, match=message):
        metric.update(nsi, increment)
    assert_same(metric.summary(), before, 0.0)


def test_refuses_flags_that_do_not_match():
    with pytest.raises(StepError, match="2 stages and 1 counted"):
        StiffnessMetric([0, 0], [True])
    with pytest.raises(StepError, match="at least one step"):
        StiffnessMetric([], [])


WORKER = """
import json, sys
import numpy as np, torch, torch.distributed as dist
from datetime import timedelta
from stiffnet.errors import StepError
from stiffnet.stiffness.metric import StiffnessMetric

folder, rank = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2,
                        timeout=timedelta(seconds=150))
nsi, increment = torch.from_numpy(np.load(f"{folder}/data.npy"))
job = json.load(open(f"{folder}/job.json"))
metric = StiffnessMetric(job["stages"], job["counted"])
answers = {}
try:
    metric.summary()
except StepError as error:
    answers["nobody"] = str(error)
for name, cut in (("uneven", 16), ("one empty", len(nsi))):
    metric.reset()
    mine = slice(0, cut) if rank == 0 else slice(cut, None)
    for part, other in zip(nsi[mine].split(5), increment[mine].split(5)):
        if len(part):
            metric.update(part, other)
    summary = metric.summary()
    answers[name] = [x.tolist() if isinstance(x, np.ndarray) else x for x in summary]
    answers[name + " own"] = int(metric.samples)
answers["tns"] = float(metric.compute())
each = StiffnessMetric(job["stages"], job["counted"], dist_sync_on_step=True)
answers["step"] = float(each(nsi[rank::2], increment[rank::2]))
answers["step own"] = int(each.samples)
other = StiffnessMetric(job["stages"], [not flag if rank else flag for flag in job["counted"]])
other.update(nsi)
try:
    other.compute()
except StepError as error:
    answers["disagree"] = str(error)
assert int(other.samples) == len(nsi) and not other._is_synced
json.dump(answers, open(f"{folder}/answer{rank}.json", "w"))
dist.destroy_process_group()
"""


def test_two_ranks_give_the_number_of_one(tmp_path):
    """Uneven data, one rank without any, none at all, batch by batch, and ranks that disagree."""
    nsi, increment = some_indices()
    np.save(tmp_path / "data.npy", np.stack([nsi, increment]))
    (tmp_path / "job.json").write_text(json.dumps({"stages": STAGES, "counted": COUNTED}))
    (tmp_path / "worker.py").write_text(WORKER)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-W",
        "error::UserWarning",
        str(tmp_path / "worker.py"),
        str(tmp_path),
    ]
    ranks = [
        subprocess.Popen([*command, str(rank)], env=environment, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        errors = [rank.communicate(timeout=180)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0, 0], errors
    whole = filled(nsi, increment).summary()
    for rank, own in enumerate(([16, 23], [7, 0])):
        answers = json.loads((tmp_path / f"answer{rank}.json").read_text())
        assert "Nothing was measured" in answers["nobody"]
        for name, mine in zip(("uneven", "one empty"), own, strict=True):
            assert_same(type(whole)(*answers[name]), whole, RTOL["merge"])
            assert answers[name + " own"] == mine  # the rank's own state is back
        assert answers["step"] == pytest.approx(whole.tns, rel=RTOL["merge"])
        assert answers["step own"] == [12, 11][rank]
        assert answers["tns"] == pytest.approx(whole.tns, rel=RTOL["merge"])
        assert "count different steps" in answers["disagree"]
