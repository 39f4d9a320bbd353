"""A thousand generated chains of layers: folding changes nothing that they compute.

A quarter of them on every run, the others with the slow tests.
"""

import pytest
import torch

from fold.generated import Chain, generate
from stiffnet.attention.asr import ConstantGate
from stiffnet.fold.compare import TOLERANCES
from stiffnet.fold.fold import fold

SHARE = 25


def content(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def bits(state):
    return {
        name: (tensor.dtype, tensor.stride(), tensor.reshape(-1).contiguous().view(torch.uint8))
        for name, tensor in ((n, t.reshape(1) if t.ndim == 0 else t) for n, t in state.items())
    }


def same_bits(one, other):
    a, b = bits(one), bits(other)
    return a.keys() == b.keys() and all(
        a[k][:2] == b[k][:2] and torch.equal(a[k][2], b[k][2]) for k in a
    )


FIRST, ALL = 250, 1000


@pytest.mark.parametrize(
    "first",
    [
        *range(0, FIRST, SHARE),
        *(pytest.param(n, marks=pytest.mark.slow) for n in range(FIRST, ALL, SHARE)),
    ],
)
def test_folding_generated_networks(first):
    for number in range(first, first + SHARE):
        made = generate(number)
        before = content(made.model)
        with torch.no_grad():
            expected = made.model(made.images).double()
        result = fold(made.model, made.images, fuse=number % 2 == 0, passes=0)
        with torch.no_grad():
            error = (result.model(made.images).double() - expected).abs().max()
        assert error <= TOLERANCES[made.images.dtype] * expected.abs().max(), number
        assert same_bits(content(made.model), before), number
        assert type(result.model) is Chain
        assert not any(isinstance(module, ConstantGate) for module in result.model.modules())
        gates = [item for item in result.report.folded if item.kind == "asr:vector"]
        assert len(gates) == made.gates
        if number % 2:
            kept = {k: t for k, t in before.items() if "step_size" not in k}
            assert result.model.state_dict().keys() == kept.keys()
            assert all(t.dtype == kept[k].dtype for k, t in result.model.state_dict().items())
