"""Networks of the transformers library take modules: text, masks, caches, checkpointing, images."""

import copy

import pytest
import torch

from network.attach_cases import scaled
from network.transformers_cases import (
    DECODERS,
    ENCODERS,
    EVERY,
    example,
    network,
    result,
)
from stiffnet.errors import StepError
from stiffnet.network.attach import attach, attached, detach
from tolerances import RTOL

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def label(case):
    return case.name


@pytest.mark.parametrize("case", EVERY, ids=label)
def test_a_network_takes_modules_and_gives_them_back(case):
    model, inputs = network(case), example(case)
    with torch.no_grad():
        expected = result(model, **inputs)
        keys, kinds = list(model.state_dict()), [type(m) for m in model.modules()]
        attach(model, "se", start="identity", example=inputs)
        assert len(attached(model)) == case.steps
        assert scaled(result(model, **inputs), expected) <= RTOL["identity"]
        more = example(case, samples=3, length=9)
        copied = copy.deepcopy(model)
        for parameter in copied.parameters():
            parameter.mul_(1.1)
        assert not torch.equal(result(copied, **more), result(model, **more))
        assert torch.equal(result(detach(model), **inputs), expected)
    assert list(model.state_dict()) == keys
    assert [type(m) for m in model.modules()] == kinds


@pytest.mark.parametrize("case", [*DECODERS, *ENCODERS], ids=label)
def test_masks_work_as_without_modules(case):
    model, inputs = network(case), example(case)
    mask = torch.ones_like(inputs["input_ids"])
    mask[1, :2] = 0
    with torch.no_grad():
        expected = result(model, **inputs, attention_mask=mask)
        attach(model, "se", start="identity", example=inputs)
        assert scaled(result(model, **inputs, attention_mask=mask), expected) <= RTOL["identity"]


@pytest.mark.parametrize("case", DECODERS, ids=label)
def test_caches_work_as_without_modules_where_nothing_is_read(case):
    model, inputs = network(case), example(case)
    tokens = inputs["input_ids"]
    attach(model, "asr:se", example=inputs)
    with torch.no_grad():
        whole = result(model, input_ids=tokens)
        first = model(input_ids=tokens[:, :5], use_cache=True)
        later = model(input_ids=tokens[:, 5:], past_key_values=first.past_key_values)
        assert scaled(later.last_hidden_state, whole[:, 5:]) <= RTOL["cached"]
    detach(model)
    attach(model, "se", example=inputs)
    with torch.no_grad():
        steps = [model(input_ids=tokens[:, :5], use_cache=cached) for cached in (True, False)]
        assert [step.past_key_values is not None for step in steps] == [True, False]
        assert torch.equal(steps[0].last_hidden_state, steps[1].last_hidden_state)
        with pytest.raises(StepError, match="beside a cache of keys and values"):
            model(input_ids=tokens[:, 5:], past_key_values=steps[0].past_key_values)


@pytest.mark.parametrize("case", [DECODERS[0], DECODERS[1], ENCODERS[0]], ids=label)
def test_gradient_checkpointing_works_as_without(case):
    model, inputs = network(case), example(case)
    attach(model, "se", example=inputs)

    def grads(checkpointing):
        other = copy.deepcopy(model).train()
        for module in other.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        if checkpointing:
            other.gradient_checkpointing_enable({"use_reentrant": False})
        result(other, **inputs).square().sum().backward()
        return {name: p.grad for name, p in other.named_parameters() if p.grad is not None}

    one, other = grads(False), grads(True)
    assert one.keys() == other.keys()
    assert any("step_size" in name for name in one)
    assert all(scaled(other[name], one[name]) <= RTOL["batch32"] for name in one if one[name].any())
