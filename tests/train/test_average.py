"""The moving average: its closed form, its warm-up, and the same bits after a pause."""

import copy

import pytest
import torch
from torch import nn

from stiffnet.errors import CheckpointError, RecipeError
from stiffnet.train.average import Average, decay_at
from tolerances import RTOL


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(18, 2))


@pytest.fixture
def history():
    """A network after each of 30 steps, of which the first is the random start."""
    model = network()
    model(torch.randn(4, 1, 5, 5))
    states = [copy.deepcopy(model)]
    for _ in range(30):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
        model(torch.randn(4, 1, 5, 5))
        states.append(copy.deepcopy(model))
    return states


def averaged(history, decay, first=1, average=None):
    average = Average(history[0], decay) if average is None else average
    for step in range(first, len(history)):
        average.update(history[step], step)
    return average


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9, 0.999])
def test_agrees_with_the_sum_that_it_stands_for(history, decay):
    r"""$\bar x_T = \sum_t (1 - d_t) \prod_{s > t} d_s\, x_t$, with d_0 = 0 for the start."""
    history = [model.double() for model in history]
    decays = [0.0] + [min(decay, (1 + t) / (10 + t)) for t in range(1, len(history))]
    weights = [
        (1 - d) * float(torch.tensor(decays[t + 1 :], dtype=torch.float64).prod())
        for t, d in enumerate(decays)
    ]
    assert sum(weights) == pytest.approx(1.0, rel=RTOL["float64"])
    actual = averaged(history, decay).model.state_dict()
    states = [model.state_dict() for model in history]
    for name, value in actual.items():
        if value.is_floating_point():
            expected = sum(w * state[name] for w, state in zip(weights, states, strict=True))
            torch.testing.assert_close(value, expected, rtol=RTOL["float64"], atol=RTOL["float64"])


def test_the_random_start_is_soon_forgotten():
    """What is left of it is 10! (t + 1)! / (t + 10)! while the warm-up lasts."""
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.ones_(model.weight)
    average = Average(model, 0.9999)
    nn.init.zeros_(model.weight)
    for step in range(1, 21):
        average.update(model, step)
    expected = 1.0
    for factor in range(22, 31):
        expected *= (factor - 20) / factor
    assert float(average.model.weight) * 10 == pytest.approx(expected * 10, rel=RTOL["float64"])
    assert expected < 1e-6


def test_the_decay_grows_to_what_was_asked():
    decays = [decay_at(step, 0.99) for step in range(1, 2000)]
    assert decays == sorted(decays)
    assert decays[0] == 2 / 11
    assert decays[-1] == 0.99


def test_counts_are_copied_and_the_network_is_left_alone(history):
    before = copy.deepcopy(history[-1].state_dict())
    average = averaged(history, 0.9)
    assert int(average.model[1].num_batches_tracked) == len(history)
    assert average.model[1].num_batches_tracked.dtype == torch.int64
    assert not any(module.training for module in average.model.modules())
    assert not any(parameter.requires_grad for parameter in average.model.parameters())
    assert history[-1].training
    assert all(torch.equal(value, before[name]) for name, value in history[-1].state_dict().items())
    assert all(parameter.requires_grad for parameter in history[-1].parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_going_on_after_a_pause_gives_the_same_bits(history, dtype):
    history = [model.to(dtype) for model in history]
    whole, pause = averaged(history, 0.99), averaged(history[:13], 0.99)
    resumed = Average(history[-1], 0.99)
    resumed.load_state_dict(copy.deepcopy(pause.state_dict()))
    assert_same_bits(resumed, pause)
    assert_same_bits(averaged(history, 0.99, first=13, average=resumed), whole)


def assert_same_bits(first, second):
    for one, two in (
        (first.state_dict(), second.state_dict()),
        (first.model.state_dict(), second.model.state_dict()),
    ):
        assert list(one) == list(two)
        assert all(torch.equal(value, two[name]) for name, value in one.items())


def test_the_names_are_those_of_the_network(history):
    assert list(averaged(history, 0.9).state_dict()) == list(history[0].state_dict())
    copy.deepcopy(history[0]).load_state_dict(averaged(history, 0.9).state_dict())


def test_half_precision_is_averaged_in_float32():
    """A step of 1/512 of the distance is lost if each sum is rounded to bfloat16."""
    model = nn.Linear(1, 1, bias=False).bfloat16()
    nn.init.ones_(model.weight)
    average = Average(model, 511 / 512)
    nn.init.constant_(model.weight, 2.0)
    for _ in range(512):
        average.update(model, step=10**6)
    expected = 2 - (511 / 512) ** 512
    assert average.state_dict()["weight"].dtype == torch.float32
    assert float(average.state_dict()["weight"]) == pytest.approx(expected, rel=RTOL["batch32"])
    assert average.model.weight.dtype == torch.bfloat16
    assert float(average.model.weight) == pytest.approx(expected, rel=RTOL["bfloat16"])


def test_a_shared_tensor_is_averaged_once():
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)).double()
    model[1].weight = model[0].weight
    nn.init.zeros_(model[0].weight)
    average = Average(model, 0.5)
    nn.init.ones_(model[0].weight)
    average.update(model, step=1000)
    assert average.model[0].weight is average.model[1].weight
    assert average.state_dict() == {
        "0.weight": torch.tensor([[0.5]]),
        "1.weight": torch.tensor([[0.5]]),
    }


def test_buffers_that_no_state_dict_holds_follow_the_network():
    model = nn.Linear(1, 1)
    model.register_buffer("clock", torch.zeros(1), persistent=False)
    average = Average(model, 0.9)
    model.clock += 7
    average.update(model, step=100)
    assert float(average.model.clock) == 7
    assert "clock" not in average.state_dict()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda state: state.pop("1.running_var"), "1.running_var"),
        (lambda state: state.update(more=torch.ones(1)), "more"),
        (lambda state: state.update({"0.bias": torch.ones(3)}), "0.bias"),
    ],
)
def test_weights_of_another_network_are_refused_and_nothing_changes(history, change, name):
    average = averaged(history, 0.9)
    before = copy.deepcopy(average.state_dict())
    state = {key: value + 1 for key, value in before.items()}
    change(state)
    with pytest.raises(CheckpointError, match=rf"do not belong.*{name!r} is missing.*the recipe"):
        average.load_state_dict(state)
    assert all(torch.equal(value, before[key]) for key, value in average.state_dict().items())


@pytest.mark.parametrize("decay", [-0.1, 1.0, float("nan")])
def test_refuses_a_decay_that_is_none(decay):
    with pytest.raises(RecipeError, match=r"decay .*set `ema_decay`"):
        Average(nn.Linear(1, 1), decay)
