"""ACNet's ResNets: three branches that are one convolution, in a network that is a plain one."""

import pytest
import timm
import torch
from torch import nn
from torch.nn import functional

from stiffnet.backbones.cifar_acnet import PARALLEL, VARIANTS, AsymmetricBlock, AsymmetricConv
from stiffnet.backbones.cifar_resnet import CifarResNet
from stiffnet.trajectory.steps import steps
from tolerances import RTOL


def on_meta(name, **options):
    with torch.device("meta"):
        return timm.create_model(name, **options)


def parameters(model):
    return sum(p.numel() for p in model.parameters())


def scattered(module):
    """The same module in evaluation and float64, with norms that do something."""
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            for tensor in (norm.weight.data, norm.bias.data, norm.running_mean, norm.running_var):
                tensor.copy_(torch.rand(tensor.shape) + 0.5)
    return module.double().eval()


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [(1, 1), (4, 4), (7, 6)])
def test_the_branches_are_one_convolution_with_a_stronger_cross(stride, size):
    block = scattered(AsymmetricConv(3, 5, stride))
    kernel, bias = torch.zeros(5, 3, 3, 3, dtype=torch.float64), 0
    rows_and_columns = {
        "square": (slice(None), slice(None)),
        "vertical": (slice(None), slice(1, 2)),
        "horizontal": (slice(1, 2), slice(None)),
    }
    for name in PARALLEL:
        conv, norm = block.get_submodule(f"{name}.conv"), block.get_submodule(f"{name}.norm")
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        kernel[:, :, *rows_and_columns[name]] += conv.weight * scale[:, None, None, None]
        bias = bias + norm.bias - scale * norm.running_mean
    x = torch.rand(2, 3, *size, dtype=torch.float64)
    expected = functional.conv2d(x, kernel, bias, stride=stride, padding=1)
    assert (block(x) - expected).abs().max() <= RTOL["float64"] * expected.abs().max()


def test_the_branches_are_found_by_their_names():
    block = AsymmetricConv(2, 3)
    assert [name for name, _ in block.named_children()] == list(PARALLEL)
    for branch in block.children():
        assert [(name, type(m)) for name, m in branch.named_children()] == [
            ("conv", nn.Conv2d), ("norm", nn.BatchNorm2d),
        ]  # fmt: skip


def test_each_branch_starts_with_a_third():
    model = timm.create_model("acresnet56_cifar")
    blocks = [m for m in model.modules() if isinstance(m, AsymmetricConv)]
    weights = [
        norm.weight for b in blocks for norm in b.modules() if isinstance(norm, nn.BatchNorm2d)
    ]
    assert len(weights) == 3 * len(blocks)
    assert all(torch.equal(w, torch.full_like(w, 1 / 3)) for w in weights)


@pytest.mark.parametrize("name", VARIANTS)
def test_parameters_are_the_plain_networks_and_the_crosses(name):
    plain = on_meta("resnet20_cifar")
    layers = 6 * VARIANTS[name] + 1
    model = on_meta(name)
    squares = [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(squares) == layers
    crosses = sum(6 * m.in_channels * m.out_channels + 4 * m.out_channels for m in squares)
    # A block of width w has 18 w² + 4 w parameters; the shallow network has three in each stage.
    more = (VARIANTS[name] - 3) * sum(18 * w * w + 4 * w for w in (16, 32, 64))
    assert parameters(model) == parameters(plain) + more + crosses


def test_without_its_crosses_it_is_the_plain_network():
    model = scattered(timm.create_model("acresnet56_cifar", num_classes=3))
    plain = timm.create_model("resnet56_cifar", num_classes=3).double().eval()
    for block in model.modules():
        if isinstance(block, AsymmetricConv):
            for branch in (block.vertical, block.horizontal):
                nn.init.zeros_(branch.norm.weight)
                nn.init.zeros_(branch.norm.bias)
    renamed = {
        key.replace("square.norm.", "").replace("conv", "bn")
        if ".square.norm." in key
        else key.replace(".square.conv.", "."): value
        for key, value in model.state_dict().items()
        if ".vertical." not in key and ".horizontal." not in key
    }
    plain.load_state_dict(renamed, strict=True)
    images = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    expected = plain(images)
    assert (model(images) - expected).abs().max() <= RTOL["float64"] * expected.abs().max()


def check_steps(model, blocks):
    found = steps(model, torch.empty(1, 3, 32, 32, device="meta"))
    assert [step.name for step in found] == [
        f"layer{stage}.{block}" for stage in (1, 2, 3) for block in range(blocks)
    ]
    assert sum(step.counted for step in found) == 3 * (blocks - 1)
    assert (found[0].shape, found[-1].shape) == ((16, 32, 32), (64, 8, 8))


def test_there_is_a_step_a_block_and_none_in_a_sum_of_branches():
    with torch.device("meta"):
        check_steps(CifarResNet(AsymmetricBlock, 2, stem=AsymmetricConv), 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_the_published_depths_have_their_steps(name):
    check_steps(on_meta(name), VARIANTS[name])
