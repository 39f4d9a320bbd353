"""`reduced` is `dense` on every kind of block, with every attention module on it and none."""

import numpy as np
import pytest
import torch
from torch import nn

import stiffnet
from stiffnet.attention import ATTENTION
from stiffnet.errors import StepError

CLOSE = 1e-8  # of the largest |λ|: eigenvalues of other matrices, in float64
LARGEST = 1500  # numbers in a state, so that `dense` takes seconds
KINDS = {
    "basic": ("resnet20_cifar", 8),
    "bottleneck": ("resnet29_cifar", 4),
    "pre-activation": ("preresnet29_cifar", 4),
    "inverted residual": ("mobilenetv2_050", 64),
    "grouped": ("regnetx_002", 64),
    "depthwise, smooth": ("convnext_atto", 64),
}
MODULES = ["", *(entry.name for entry in ATTENTION), "asr:se", "asr:srm"]


def shaken(model):
    """Norms that do something, so that no step is near zero."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.3)
            nn.init.normal_(module.running_mean, std=0.2)
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("attention", MODULES)
@pytest.mark.parametrize(("network", "size"), KINDS.values(), ids=KINDS)
def test_reduced_is_dense(network, size, attention, dtype):
    torch.manual_seed(1)
    model, x = stiffnet.create_model(network, num_classes=3, seed=0), torch.rand(1, 3, size, size)
    if attention:
        try:
            stiffnet.attach(model, attention, example=x)
        except StepError as error:  # such as SGE's, which splits channels into groups
            pytest.skip(str(error))
    model, x = shaken(model).to(dtype), x.to(dtype)
    small = [s for s in stiffnet.steps(model, x) if s.identity and np.prod(s.shape) <= LARGEST]
    for of in ("branch", "block"):
        dense, reduced = (
            stiffnet.spectrum(model, small[-1], x, of=of, method=m) for m in ("dense", "reduced")
        )
        near = CLOSE * dense.radius
        for key in ("max_real", "min_real", "radius", "real_extent", "norm"):
            assert getattr(reduced, key) == pytest.approx(getattr(dense, key), abs=near), key
        counts = [(np.abs(found.eigenvalues) > near).sum() for found in (reduced, dense)]
        assert counts[0] == counts[1]
        assert reduced.negative_share == dense.negative_share
        assert reduced.count == dense.count == np.prod(dense.shape)
        assert reduced.inner <= dense.inner
