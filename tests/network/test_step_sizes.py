"""Step sizes read off a running network are the gates that its modules compute."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

import stiffnet
from stiffnet.errors import StepError
from stiffnet.network.step_sizes import step_sizes
from tolerances import RTOL

IMAGES = torch.rand(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
BATCHES = [(IMAGES[:2], torch.zeros(2)), (IMAGES[2:], torch.zeros(3))]


@pytest.mark.parametrize("name", ["se", "eca", "srm", "stepnet", "dia"])
def test_the_values_are_the_gates(name):
    model = stiffnet.create_model("resnet20_cifar", num_classes=4, attention=name, seed=1).eval()
    gates = {}

    def listen(step, module, inputs, output):
        if name != "dia":
            gates[step] = module.step_size(*inputs)[:, :, 0, 0]
        else:  # whose cell must not run twice: look at where the rate is largest
            rate = inputs[0].flatten(2)
            where = rate.abs().argmax(dim=2, keepdim=True)
            gates[step] = (output.flatten(2).gather(2, where) / rate.gather(2, where))[:, :, 0]

    for found in stiffnet.attached(model):
        model.get_submodule(found.name).register_forward_hook(partial(listen, found.at))
    values = step_sizes(model, BATCHES)
    assert list(values) == [step.name for step in stiffnet.steps(model, IMAGES)]
    assert {len(found) for found in values.values()} == {5}
    model(IMAGES)
    assert len(gates) == 9
    torch.testing.assert_close(values, gates, rtol=RTOL["batch32"], atol=0.0)


class EveryPixel(nn.Module):
    """A user's: each entry of the rate has a step size of its own."""

    def __init__(self, channels, *, channel_axis=1):
        super().__init__()

    def forward(self, rate):
        return torch.sigmoid(rate.square()) * rate


class InAPart(EveryPixel):
    def __init__(self, channels, *, channel_axis=1):
        super().__init__(channels)
        self.part = EveryPixel(channels)

    def forward(self, rate):
        return self.part(rate)


@pytest.mark.parametrize("module", [EveryPixel, InAPart])
def test_a_module_of_the_users_scales_a_rate_whatever_the_size_of_its_gate(module):
    plain = stiffnet.create_model("resnet20_cifar", seed=1).eval()
    model = stiffnet.attach(copy.deepcopy(plain), module, where=["layer2.0", "layer3.1"])
    rates = []
    for each in (plain, model):
        with stiffnet.record(each) as recording:
            each(IMAGES)
        rates.append(recording.trajectory.rate_norms[:, 3])
        assert recording.trajectory.steps[3].name == "layer2.0"
    torch.testing.assert_close(rates[1], rates[0], rtol=RTOL["batch32"], atol=0.0)
    assert not torch.allclose(recording.trajectory.increment_norms[:, 3], rates[1])


def test_a_network_without_modules_has_none():
    with pytest.raises(StepError, match="Nothing is attached to CifarResNet"):
        step_sizes(stiffnet.create_model("resnet20_cifar"), BATCHES)
