"""What torchmetrics asks of a metric: collections, trackers, forward, merging, storing, plots."""

import copy
import math
import pickle
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torchmetrics import MetricCollection, MetricTracker
from torchmetrics.wrappers import MinMaxMetric

from reference import stiffness as reference
from stiffnet.errors import StepError
from stiffnet.stiffness.metric import StiffnessMetric
from tolerances import RTOL

STEPS = 4
ALL = [True] * STEPS
LATE = [False, True, True, True]
EARLY = [True, True, True, False]


def some_indices(samples=12, seed=0):
    rng = np.random.default_rng(seed)
    nsi = torch.from_numpy(rng.lognormal(sigma=0.7, size=(samples, STEPS)))
    return nsi, nsi * torch.from_numpy(rng.uniform(size=nsi.shape))


def metric_of(counted=LATE, stages=(0,) * STEPS, **kwargs):
    return StiffnessMetric(stages, counted, **kwargs)


def expected(nsi, counted=LATE, stages=(0,) * STEPS):
    """Mean total stiffness from the definition."""
    ids = [stage for stage, enters in zip(stages, counted, strict=True) if enters]
    return reference.tns(np.asarray(nsi, dtype="f8")[:, np.flatnonzero(counted)], ids).mean()


def close(value, rel=RTOL["float64"]):
    return pytest.approx(float(value), rel=rel, abs=0.0)


class EveryState(StiffnessMetric):
    """The slower of torchmetrics' two ways to compute a batch's value."""

    full_state_update = True


# Collections


first_batches = st.sampled_from(
    [
        torch.zeros(2, STEPS),
        torch.ones(3, STEPS),
        torch.empty(0, STEPS),
        torch.full((2, STEPS), 1e-9),
        some_indices(5, seed=9)[0],
    ]
)
flags = st.lists(st.booleans(), min_size=STEPS, max_size=STEPS).filter(any)
stage_ids = st.lists(st.sampled_from([0, 1, 10**6, 10**6 + 1]), min_size=STEPS, max_size=STEPS)


@given(first_batches, st.lists(st.tuples(flags, stage_ids), min_size=2, max_size=4))
@settings(derandomize=True, deadline=None, max_examples=30)
def test_a_collection_gives_what_each_metric_gives_alone(first, kinds):
    """Whatever the first batch is: torchmetrics shares the states of metrics it finds equal."""
    collection = MetricCollection(
        {f"m{i}": metric_of(counted, stages) for i, (counted, stages) in enumerate(kinds)}
    )
    nsi, increment = some_indices()
    collection.update(first, first)
    collection.update(nsi, increment)
    seen = torch.cat([first.double(), nsi])
    for i, (counted, stages) in enumerate(kinds):
        assert float(collection.compute()[f"m{i}"]) == close(expected(seen, counted, stages))
        alone = metric_of(counted, stages)
        alone.update(first, first)
        alone.update(nsi, increment)
        grouped = collection[f"m{i}"].summary()
        for one, two in zip(grouped, alone.summary(), strict=True):
            np.testing.assert_array_equal(one, two)


def test_metrics_that_count_the_same_still_share_their_states():
    collection = MetricCollection({"a": metric_of(), "b": metric_of(), "c": metric_of(EARLY)})
    collection.update(torch.zeros(1, STEPS))
    assert sorted(map(sorted, collection.compute_groups.values())) == [["a", "b"], ["c"]]


def test_groups_by_hand_that_mix_steps_are_refused():
    collection = MetricCollection(
        {"a": metric_of(), "b": metric_of(EARLY)}, compute_groups=[["a", "b"]]
    )
    collection.update(some_indices()[0])
    with pytest.raises(StepError, match=r"shares its states.*leave `compute_groups`"):
        collection.compute()
    with pytest.raises(StepError, match="shares its states"):
        collection["b"].summary()


def test_a_collection_passes_named_arguments_and_prefixes():
    nsi, increment = some_indices()
    collection = MetricCollection([metric_of()], prefix="val_")
    assert {k: v.shape for k, v in collection(nsi=nsi, increment=increment).items()} == {
        "val_StiffnessMetric": ()
    }
    assert float(collection.compute()["val_StiffnessMetric"]) == close(expected(nsi))


# Trackers and other wrappers


@pytest.mark.parametrize(("maximize", "pick"), [(True, np.argmax), (False, np.argmin)])
def test_a_tracker_finds_the_best(maximize, pick):
    epochs = [some_indices(seed=seed)[0] for seed in range(4)]
    for tracked in (metric_of(), MetricCollection({"tns": metric_of()})):
        tracker = MetricTracker(tracked, maximize=maximize)
        for nsi in epochs:
            tracker.increment()
            tracker.update(nsi)
        value, step = tracker.best_metric(return_step=True)
        if isinstance(value, dict):
            value, step = value["tns"], step["tns"]
        totals = [expected(nsi) for nsi in epochs]
        assert step == pick(totals)
        assert value == close(totals[step])


def test_wrappers_that_need_one_number_work():
    wrapped = MinMaxMetric(metric_of())
    one, two = (some_indices(seed=seed)[0] for seed in (0, 1))
    wrapped.update(one)
    first = {k: float(v) for k, v in wrapped.compute().items()}
    wrapped.update(two)
    both = expected(torch.cat([one, two]))
    assert first["raw"] == close(expected(one))
    assert float(wrapped.compute()["max"]) == pytest.approx(max(expected(one), both), rel=1e-6)


# Forward


@pytest.mark.parametrize("kind", [StiffnessMetric, EveryState])
@pytest.mark.parametrize("sync_on_step", [False, True])
def test_forward_gives_the_batch_and_adds_it(kind, sync_on_step):
    nsi, increment = some_indices()
    metric = kind([0] * STEPS, LATE, dist_sync_on_step=sync_on_step)
    for part, other in zip(nsi.split(5), increment.split(5), strict=True):
        assert float(metric(part, other)) == close(expected(part))
    assert float(metric.compute()) == close(expected(nsi))
    updated = metric_of()
    updated.update(nsi, increment)
    assert metric.update_count == 3
    for one, two in zip(metric.summary(), updated.summary(), strict=True):
        np.testing.assert_allclose(one, two, rtol=RTOL["merge"], atol=0.0)


@pytest.mark.parametrize("kind", [StiffnessMetric, EveryState])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (torch.full((2, STEPS), math.nan), "NaN or infinite"),
        (torch.ones(2, STEPS + 1), "has shape"),
        (torch.empty(0, STEPS), "Nothing was measured"),  # an empty batch has no value of its own
    ],
)
def test_a_batch_that_forward_refuses_loses_nothing(kind, bad, message):
    nsi, increment = some_indices()
    metric = kind([0] * STEPS, LATE)
    metric(nsi[:7], increment[:7])
    with pytest.raises(StepError, match=message):
        metric(bad)
    assert int(metric.samples) == 7
    assert metric.update_count == 1
    metric(nsi[7:], increment[7:])
    assert float(metric.compute()) == close(expected(nsi))


def test_values_do_not_require_gradients():
    nsi = some_indices()[0].requires_grad_()
    metric = metric_of()
    value = metric(nsi)
    assert not value.requires_grad
    assert not metric.compute().requires_grad
    assert not any(state.requires_grad for state in metric.metric_state.values())


# The value


def test_computed_values_are_float64_numbers_of_their_own():
    nsi, increment = some_indices()
    metric = metric_of()
    given = metric(nsi, increment)
    assert (given.dtype, given.shape) == (torch.float64, ())
    given.fill_(-1.0)
    metric.compute().fill_(-1.0)
    assert float(metric.compute()) == close(expected(nsi))
    assert float(metric._forward_cache) == close(expected(nsi))  # which Lightning logs
    first = metric.summary()
    for array in first:
        if isinstance(array, np.ndarray):
            array.fill(-1.0)
    assert float(metric.compute()) == close(expected(nsi))
    assert metric.summary().nsi_mean.tolist() == close_list(nsi.mean(dim=0))
    assert (metric.summary().nsi_min > 0).all()


def close_list(values):
    return pytest.approx(values.tolist(), rel=RTOL["float64"], abs=0.0)


def test_later_batches_do_not_change_what_was_given_out():
    nsi, _ = some_indices()
    metric = metric_of()
    metric.update(nsi[:5])
    states = metric.metric_state
    before = {name: state.clone() for name, state in states.items()}
    value, summary = metric.compute(), metric.summary()
    kept = copy.deepcopy((value, summary))
    metric.update(nsi[5:])
    metric.reset()
    assert all(torch.equal(states[name], before[name]) for name in states)
    assert torch.equal(value, kept[0])
    for one, two in zip(summary, kept[1], strict=True):
        np.testing.assert_array_equal(one, two)


def test_nothing_counted_has_no_total_to_compute():
    metric = metric_of([False] * STEPS)
    metric.update(torch.ones(2, STEPS))
    with pytest.raises(StepError, match=r"No step is counted.*`summary\(\)`"):
        metric.compute()
    with pytest.raises(StepError, match="No step is counted"):
        metric(torch.ones(2, STEPS))
    assert metric.summary().samples == 2
    assert metric.summary().tns is None


def test_reset_forgets_samples_and_keeps_the_layout():
    nsi, increment = some_indices()
    metric = metric_of()
    metric.update(nsi * 3)
    metric.compute()
    metric.reset()
    assert metric.update_count == 0
    with pytest.raises(StepError, match="Nothing was measured"):
        metric.compute()
    metric.update(nsi, increment)
    assert float(metric.compute()) == close(expected(nsi))


# Merging and storing


@pytest.mark.parametrize("as_states", [False, True])
def test_merged_states_are_those_of_all_samples(as_states):
    nsi, increment = some_indices()
    one, two, whole = metric_of(), metric_of(), metric_of()
    one.update(nsi[:5], increment[:5])
    two.update(nsi[5:], increment[5:])
    whole.update(nsi, increment)
    one.compute()  # fills the cache, which the merge makes wrong
    one.merge_state(two.metric_state if as_states else two)
    assert float(one.compute()) == close(expected(nsi))
    for a, b in zip(one.summary(), whole.summary(), strict=True):
        np.testing.assert_allclose(a, b, rtol=RTOL["merge"], atol=0.0)
    assert int(two.samples) == 7


OTHERS = {
    "counts other steps": lambda: metric_of(EARLY),
    "other stages": lambda: metric_of(LATE, [0, 0, 1, 1]),
    "shape": lambda: StiffnessMetric([0] * 5, [True] * 5),
}


def filled(metric):
    metric.update(torch.zeros(3, metric._steps))
    return metric


@pytest.mark.parametrize("word", OTHERS)
def test_states_of_other_steps_are_neither_merged_nor_loaded(word):
    other = filled(OTHERS[word]())
    other.persistent(True)
    metric = metric_of()
    metric.update(some_indices()[0])
    before = {name: state.clone() for name, state in metric.metric_state.items()}
    with pytest.raises(StepError, match="of the same steps"):
        metric.merge_state(other)
    with pytest.raises(StepError, match="of the same steps"):
        metric.merge_state(other.metric_state)
    with pytest.raises(StepError, match="of the same steps"):
        metric.load_state_dict(other.state_dict())
    assert all(torch.equal(value, before[name]) for name, value in metric.metric_state.items())


def test_states_that_were_rounded_or_lost_are_refused():
    states = filled(metric_of()).metric_state
    with pytest.raises(StepError, match=r"`histogram` is torch.bfloat16.*in their own dtype"):
        metric_of().merge_state(states | {"histogram": states["histogram"].bfloat16()})
    with pytest.raises(StepError, match="lack tns_sum"):
        metric_of().merge_state({k: v for k, v in states.items() if k != "tns_sum"})


def test_stored_states_go_on_where_they_were():
    nsi, increment = some_indices()
    metric = metric_of()
    assert metric.state_dict() == {}  # torchmetrics' default
    metric.persistent(True)
    metric.update(nsi[:5], increment[:5])
    stored = metric.state_dict()
    other = metric_of()
    other.update(nsi * 7)
    other.compute()  # fills the cache, which loading makes wrong
    other.load_state_dict(stored)
    assert float(other.compute()) == close(expected(nsi[:5]))
    other.update(nsi[5:], increment[5:])
    assert float(other.compute()) == close(expected(nsi))
    assert int(stored["samples"]) == 5


def test_a_model_with_a_metric_in_it_loads_with_and_without_its_states():
    nsi, increment = some_indices()
    model = torch.nn.ModuleDict({"net": torch.nn.Linear(2, 2), "tns": metric_of()})
    model["tns"].update(nsi, increment)
    plain = model.state_dict()
    assert set(plain) == {"net.weight", "net.bias"}
    model["tns"].persistent(True)
    full = model.state_dict()
    model["tns"].reset()
    model.load_state_dict(full)
    assert float(model["tns"].compute()) == close(expected(nsi))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_go_on_apart(copied):
    nsi, increment = some_indices()
    metric = metric_of()
    metric.update(nsi[:5], increment[:5])
    twin = copied(metric)
    twin.update(nsi[5:], increment[5:])
    assert float(twin.compute()) == close(expected(nsi))
    assert float(metric.compute()) == close(expected(nsi[:5]))
    twin.compute().zero_()
    assert float(twin.compute()) == close(expected(nsi))


# Devices


def test_a_device_without_numbers_does_not_take_the_states():
    nsi, increment = some_indices()
    metric = metric_of()
    metric.update(nsi[:5], increment[:5])
    model = torch.nn.ModuleDict({"net": torch.nn.Linear(2, 2), "tns": metric}).to("meta")
    assert model["net"].weight.is_meta
    model.to_empty(device="cpu")
    metric.update(nsi[5:], increment[5:])
    assert metric.device.type == "cpu"
    assert float(metric.compute()) == close(expected(nsi))
    with torch.device("meta"):
        made = metric_of()
    made.update(nsi)
    made.reset()
    made.update(nsi)
    assert float(made.compute()) == close(expected(nsi))


# Plots


def test_a_plot_shows_one_value_or_a_series():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    nsi, increment = some_indices()
    metric = metric_of()
    batches = zip(nsi.split(3), increment.split(3), strict=True)
    values = [metric(part, other) for part, other in batches]
    _, axes = metric.plot()
    assert float(axes.lines[0].get_ydata()[0]) == close(expected(nsi))
    _, own = pyplot.subplots()
    nothing, drawn = metric.plot(values, ax=own)
    assert nothing is None
    assert drawn is own
    assert own.lines[0].get_ydata().tolist() == close_list(torch.stack(values))
    pyplot.close("all")


def test_without_matplotlib_a_plot_says_what_to_install(monkeypatch):
    monkeypatch.setattr("torchmetrics.utilities.plot._MATPLOTLIB_AVAILABLE", False)
    metric = filled(metric_of())
    with pytest.raises(ModuleNotFoundError, match="pip install matplotlib"):
        metric.plot()


# Options


def test_options_of_torchmetrics_are_passed_on():
    metric = metric_of(compute_with_cache=False, sync_on_compute=False)
    metric.update(torch.ones(2, STEPS))
    assert metric.compute().tolist() == 0.0
    assert metric._computed is None
    with pytest.raises(ValueError, match="compute_on_step"):  # which torchmetrics 1 has dropped
        metric_of(compute_on_step=True)


def test_no_warning_is_needed_to_compute_on_a_rank_without_data():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(StepError, match="Nothing was measured"):
            metric_of().compute()
