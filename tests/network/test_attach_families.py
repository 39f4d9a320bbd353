"""On every family: the old weights load, every gate learns, and detaching gives all of it back."""

import copy

import pytest
import timm
import torch
import torchvision

from network.attach_cases import FAST, SWEEP, anatomy, images, network, scaled
from stiffnet.network.attach import attach, attached, detach
from tolerances import RTOL
from trajectory.families import TIMM, TORCHVISION

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")


def holds(case, module):
    model, batch = network(case), images(case)
    with torch.no_grad():
        expected = model(batch)
    before, old = anatomy(model), copy.deepcopy(model.state_dict())

    assert attach(model, module, start="identity", example=batch) is model
    gates = attached(model)
    assert len(gates) == case.steps
    with torch.no_grad():
        assert scaled(model(batch), expected) <= RTOL["identity"]

    missing, unexpected = model.load_state_dict(old, strict=False)
    new = model.state_dict().keys() - old.keys()
    assert not unexpected
    assert missing
    assert set(missing) <= new
    assert all(key.startswith(tuple(gate.name + "." for gate in gates)) for key in new)

    torch.manual_seed(0)
    for training in (True, False):  # in training alone, stochastic depth may drop a whole step
        model.train(training)(batch).square().sum().backward()
    for gate in gates:
        gradients = [p.grad for p in model.get_submodule(gate.name).parameters()]
        assert all(gradient is not None for gradient in gradients)
        assert all(gradient.isfinite().all() for gradient in gradients)
        assert any(gradient.any() for gradient in gradients)

    model.load_state_dict(old, strict=False)
    detach(model.eval())
    assert anatomy(model) == before
    assert list(model.state_dict()) == list(old)
    with torch.no_grad():
        assert torch.equal(model(batch), expected)


@pytest.mark.parametrize("module", ["se", "stepnet"])
@pytest.mark.parametrize("case", FAST, ids=lambda case: case.label)
def test_a_family_takes_a_module_and_gives_it_back(case, module):
    holds(case, module)


SHARED = {"coat_tiny": 56}  # position encodings that several blocks share, with one gate for all


@pytest.mark.slow
@pytest.mark.parametrize("family", [*TIMM, *TORCHVISION], ids=lambda family: family.model)
def test_every_family_with_steps_takes_modules(family):
    with torch.device("meta"):
        create = torchvision.models.get_model if family in TORCHVISION else timm.create_model
        model, x = create(family.model).eval(), torch.rand(2, 3, family.size, family.size)
    keys = list(model.state_dict())
    attach(model, "se", example=x)
    assert len(attached(model)) == SHARED.get(family.model, family.steps)
    attach(model, "stepnet", example=x)
    assert list(detach(model).state_dict()) == keys


@pytest.mark.slow
@pytest.mark.parametrize("module", ["se", "stepnet"])
@pytest.mark.parametrize("case", SWEEP, ids=lambda case: case.label)
def test_many_families_take_a_module_and_give_it_back(case, module):
    holds(case, module)
