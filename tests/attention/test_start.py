"""The identity start: a network that is not wrecked by what is attached to it."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from attention.cases import ENTRIES, WIDTH, made, named, pair, random
from stiffnet.attention import Attention
from stiffnet.attention.adaptors import ADAPTORS
from stiffnet.errors import StepError
from tolerances import RTOL

PLACES = {"at rest": 0.0, "small": 1e-6, "usual": 1.0, "large": 1e4}


def unchanged(module, scale, dtype, training):
    module.to(dtype).train(training)
    rate, state = (scale * x for x in pair(4, WIDTH, 8, 8, dtype=dtype))
    expected = rate
    if module.replaces_norm:
        expected = nn.BatchNorm2d(WIDTH, dtype=dtype).train(training)(rate)
    assert_close(module(rate, state), expected, rtol=RTOL["norm"], atol=0.0)


@pytest.mark.parametrize("training", [False, True], ids=["evaluating", "training"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("scale", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("entry", ENTRIES, ids=named)
def test_every_rate_passes_unchanged(entry, scale, dtype, training):
    unchanged(made(entry).start_at_identity(), scale, dtype, training)


@pytest.mark.parametrize("reads", ["x_t", "both"])
@pytest.mark.parametrize("adaptor", ADAPTORS)
def test_every_adaptor_can_start_so(adaptor, reads):
    (stepnet,) = (entry for entry in ENTRIES if entry.name == "stepnet")
    module = made(stepnet, input=reads, adaptor=adaptor).start_at_identity()
    unchanged(module, 1.0, torch.float32, True)


def test_every_step_of_a_stage_starts_so():
    (dia,) = (entry for entry in ENTRIES if entry.name == "dia")
    rate = random(2, WIDTH, 8, 8, dtype=torch.float32)
    for module in [m.start_at_identity() for m in dia.value.for_stage(WIDTH, 4)]:
        assert_close(module(rate), rate, rtol=RTOL["norm"], atol=0.0)


@pytest.mark.parametrize("entry", ENTRIES, ids=named)
def test_a_checkpoint_knows_how_its_network_started(entry):
    module = made(entry).start_at_identity()
    other = made(entry, seed=1)
    assert other.unit == 1.0
    other.load_state_dict(module.state_dict())
    assert other.unit == module.unit > 1.0
    assert not module.unit.requires_grad


def test_a_module_that_does_not_say_how_is_refused():
    class Half(Attention):
        def describe(self, rate, state=None):
            return rate.mean(self.positions(rate))

        def excite(self, descriptor):
            return torch.full_like(descriptor, 0.5)

    with pytest.raises(StepError, match=r"Half does not say .* write its `settle`, or use `start"):
        Half(8).start_at_identity()
