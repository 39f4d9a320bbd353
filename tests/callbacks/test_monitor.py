"""The monitor: numbers of `measure`, and a training that does not notice it."""

import math
import random
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import stiffnet
from callbacks.scripts import STEPS, Varied, network, same
from stiffnet.callbacks import StiffnessMonitor
from stiffnet.errors import DataError, NonFiniteError, StepError

IMAGES = Varied().images


def test_a_row_is_what_measure_finds():
    model, monitor = network(), StiffnessMonitor(IMAGES, samples=24)
    row, report = monitor(model, 1), stiffnet.measure(model, [IMAGES])
    assert row["stiffness/tns"] == report.tns
    assert row["stiffness/tns_se"] == report.tns_se
    found = {step: row[f"stiffness/nsi/{step}"] for step in STEPS}
    assert found == dict(zip(STEPS, report.summary.nsi_mean, strict=True))
    assert row["stiffness/seconds"] > 0
    assert monitor.report.tns == report.tns
    assert list(monitor.to_frame()["epoch"]) == [1]


def trained(monitor, epochs=2):
    """A loop of one's own, with everything that draws random numbers."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(Varied(), batch_size=8, shuffle=True)
    for epoch in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        if monitor is not None:
            gradients = [p.grad.clone() for p in model.parameters()]
            monitor(model, epoch + 1)
            assert all(map(torch.equal, gradients, [p.grad for p in model.parameters()]))
            assert all(module.training for module in model.modules())
            assert not any(module._forward_hooks for module in model.modules())
    return model, (random.random(), np.random.rand(), torch.rand(1).item())  # noqa: NPY002


@pytest.mark.parametrize(
    "data", [Varied(), DataLoader(Varied(), 8, shuffle=True), list(DataLoader(Varied(), 8))]
)
def test_training_goes_on_bit_by_bit_as_without(data):
    monitor = StiffnessMonitor(data, samples=9)
    (model, drawn), (expected, plain) = trained(monitor), trained(None)
    assert same(model, expected)
    assert drawn == plain
    assert len(monitor.history) == 2


def test_every_epoch_sees_the_same_images_in_the_same_variation():
    monitor, model = StiffnessMonitor(Varied(), samples=5), network()
    one = monitor(model, 1)
    torch.rand(1)  # training draws numbers too
    other = monitor(model, 2)
    assert {**one, "stiffness/seconds": 0} == {**other, "stiffness/seconds": 0}


def test_a_network_that_writes_into_its_input_sees_the_same_images_every_epoch():
    class Scaling(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, x):
            return self.net(x.sub_(0.5).mul_(4))

    model, monitor = Scaling(), StiffnessMonitor(IMAGES, samples=5)
    rows = [monitor(model, epoch) for epoch in range(3)]
    assert len({row["stiffness/tns"] for row in rows}) == 1


def test_it_logs_when_it_is_its_turn():
    rows = []
    monitor = StiffnessMonitor(IMAGES, every=2, log=lambda row, epoch: rows.append((epoch, row)))
    returned = [monitor(network(), epoch) for epoch in range(5)]
    assert [epoch for epoch, _ in rows] == [0, 2, 4]
    assert [bool(row) for row in returned] == [True, False, True, False, True]
    assert rows[1][1] == returned[2]


def broken():
    model = network()
    nn.init.constant_(model[1].branch[0].weight, math.nan)
    return model


def test_nan_is_named_and_training_goes_on():
    monitor = StiffnessMonitor(IMAGES)
    sound = monitor(network(), 1)
    with pytest.warns(
        UserWarning, match=r"after epoch 2 is not known: The rate at step '1' is NaN"
    ):
        row = monitor(broken(), 2)
    assert row.keys() == sound.keys()  # a table keeps its columns
    assert all(math.isnan(value) for key, value in row.items() if "seconds" not in key)
    assert monitor(network(), 3)["stiffness/tns"] == sound["stiffness/tns"]


def test_nan_in_the_first_epoch_is_named_too():
    with pytest.warns(UserWarning, match="is NaN"):
        row = StiffnessMonitor(IMAGES)(broken(), 1)
    assert math.isnan(row["stiffness/tns"])


def test_nan_stops_the_training_if_asked():
    monitor = StiffnessMonitor(IMAGES, stop_on_nan=True)
    with pytest.raises(NonFiniteError, match="step '1'"):
        monitor(broken(), 1)


def test_what_cannot_be_measured_is_an_error_at_first_and_a_warning_later():
    plain = nn.Sequential(nn.Conv2d(3, 3, 1))
    with pytest.raises(StepError, match="no residual steps"):
        StiffnessMonitor(IMAGES)(plain, 0)
    monitor = StiffnessMonitor(IMAGES)
    monitor(network(), 0)
    with pytest.warns(UserWarning, match="no residual steps"):
        monitor(plain, 1)


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_images_get_the_precision_of_the_weights(kind):
    row = StiffnessMonitor(IMAGES)(network().to(kind), 1)
    assert math.isfinite(row["stiffness/nsi/2"])


@pytest.mark.parametrize("option", ["samples", "every"])
def test_senseless_numbers_are_refused(option):
    with pytest.raises(DataError, match=f"`{option}` is 0. Give 1 or more"):
        StiffnessMonitor(IMAGES, **{option: 0})


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        x = x + self.inner(x)
        return x + self.inner(x).tanh()


def test_names_are_such_that_every_logger_takes_them():
    row = StiffnessMonitor(torch.rand(3, 4))(nn.Sequential(Twice(), Twice()), 1)
    assert "stiffness/nsi/0-1" in row
    assert not any("#" in key for key in row)


def test_no_warning_where_nothing_is_wrong():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        StiffnessMonitor(IMAGES)(network(), 1)


def test_shards_are_refused():
    model = network()
    model[1].branch[0].weight.ds_id = 0  # as DeepSpeed marks the weights that it has shared out
    with pytest.raises(StepError, match="only a shard of the network"):
        StiffnessMonitor(IMAGES)(model, 0)
