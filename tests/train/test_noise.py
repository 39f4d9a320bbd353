"""Noise in norms: the formula, its gradients, and draws that depend on nothing but their names."""

import copy

import numpy as np
import pytest
import timm
import torch
from torch import nn

import stiffnet.network.own_models  # noqa: F401  # timm knows our names from here on
from stiffnet.errors import RecipeError, UnknownNameError
from stiffnet.train.noise import Noise, add_batch_noise, add_noise, set_step
from stiffnet.train.synced_norms import plain, synchronise
from tolerances import RTOL


def values(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def norm(affine=True):
    layer = nn.BatchNorm2d(3, affine=affine).double()
    if affine:
        nn.init.normal_(layer.weight)
        nn.init.normal_(layer.bias)
    return layer


def networks():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.Tanh(), nn.BatchNorm2d(3)
    ).double()


def by_the_formula(x, layer, scale, shift):
    """[(x − μ)/σ · N_a + N_b]·γ + β, written out."""
    mean = x.mean((0, 2, 3), keepdim=True)
    variance = (x - mean).square().mean((0, 2, 3), keepdim=True)
    scale, shift = (row.view(1, -1, 1, 1) for row in (scale, shift))
    y = (x - mean) / (variance + layer.eps).sqrt() * scale + shift
    if layer.weight is None:
        return y
    return y * layer.weight.view(1, -1, 1, 1) + layer.bias.view(1, -1, 1, 1)


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=RTOL["float64"], atol=RTOL["float64"])


@pytest.mark.parametrize("kind", ["constant", "random"])
@pytest.mark.parametrize("affine", [True, False])
def test_agrees_with_the_formula_forward_and_back(kind, affine):
    layer, other = norm(affine), norm(affine)
    other.load_state_dict(layer.state_dict())
    add_noise(layer, kind, 0.8, 0.5, seed=3)
    set_step(layer, 17)
    noise = Noise(kind, 0.8, 0.5, seed=3, layer=0, channels=3, step=17).draw()
    x, y = (values(4, 3, 5, 5).requires_grad_() for _ in range(2))
    actual, expected = layer(x), by_the_formula(y, other, *noise)
    assert_close(actual, expected)
    for output in (actual, expected):
        (output**3).sum().backward()
    assert_close(x.grad, y.grad)
    for one, two in zip(layer.parameters(), other.parameters(), strict=True):
        assert_close(one.grad, two.grad)


def test_constant_noise_is_the_numbers_and_one_and_zero_are_none():
    layer, x = norm(), values(4, 3, 5, 5)
    expected = copy.deepcopy(layer)(x)
    assert torch.equal(add_noise(copy.deepcopy(layer), "constant", 1.0, 0.0, seed=0)(x), expected)
    assert torch.equal(add_noise(copy.deepcopy(layer), "random", 0.0, 0.0, seed=0)(x), expected)
    assert Noise("constant", 0.8, 0.5, 0, 0, 2).draw().tolist() == [[0.8, 0.8], [0.5, 0.5]]


def test_random_noise_has_the_asked_means_and_standard_deviations():
    draws = torch.stack([Noise("random", 0.3, 0.2, 0, 4, 100, step).draw() for step in range(400)])
    scale, shift = draws[:, 0].flatten(), draws[:, 1].flatten()
    four_errors = 4 / np.sqrt(scale.numel())
    assert float(scale.mean()) == pytest.approx(1.0, abs=0.3 * four_errors)
    assert float(shift.mean()) == pytest.approx(0.0, abs=0.2 * four_errors)
    assert float(scale.std()) == pytest.approx(0.3, rel=four_errors)
    assert float(shift.std()) == pytest.approx(0.2, rel=four_errors)
    correlation = np.corrcoef(draws.flatten(1).T[[0, 1, 100, 101]])
    assert np.abs(correlation - np.eye(4)).max() < 4 / np.sqrt(len(draws))


def test_a_draw_is_a_function_of_seed_step_and_layer():
    base = Noise("random", 1.0, 1.0, seed=0, layer=0, channels=5)
    state = torch.get_rng_state()
    assert torch.equal(base.draw(), base.draw())
    assert torch.equal(torch.get_rng_state(), state)
    variants = {(s, layer, t) for s in (0, 1, 2**40) for layer in (0, 1) for t in (0, 1, 2**33)}
    drawn = {
        tuple(Noise("random", 1.0, 1.0, s, layer, 5, t).draw().flatten().tolist())
        for s, layer, t in variants
    }
    assert len(drawn) == len(variants)


def test_a_resumed_copy_draws_what_the_whole_run_drew():
    model, x = networks(), values(4, 2, 5, 5)
    add_noise(model, "random", 0.2, 0.1, seed=1)
    outputs = []
    for step in range(4):
        set_step(model, step)
        outputs.append(model(x))
    resumed = add_noise(networks(), "random", 0.2, 0.1, seed=1)
    resumed.load_state_dict(model.state_dict())
    for later in (resumed, copy.deepcopy(model)):
        set_step(later, 2)
        assert torch.equal(later(x), outputs[2])
    assert not torch.equal(outputs[1], outputs[2])


def test_a_copy_has_a_step_of_its_own():
    model, x = add_noise(networks(), "random", 0.2, 0.1, seed=1), values(4, 2, 5, 5)
    other = copy.deepcopy(model)
    before = model(x)
    set_step(other, 9)
    assert torch.equal(model(x), before)
    assert not torch.equal(other(x), before)


def test_noise_leaves_evaluation_statistics_names_and_tensors_alone():
    model, x = networks(), values(4, 2, 5, 5)
    noisy = add_noise(copy.deepcopy(model), "constant", 0.5, 0.5, seed=0)
    assert torch.equal(noisy.eval()(x), model.eval()(x))
    first, second = noisy.train()[:2](x), model.train()[:2](x)
    assert not torch.equal(first, second)
    assert list(noisy.state_dict()) == list(model.state_dict())
    for key, value in model[1].state_dict().items():
        assert torch.equal(noisy[1].state_dict()[key], value)


def test_a_norm_that_is_frozen_in_a_network_in_training_has_no_noise():
    layer, x = norm(), values(4, 3, 5, 5)
    expected = copy.deepcopy(layer).eval()(x)
    model = nn.Sequential(add_noise(layer, "constant", 0.5, 0.5, seed=0)).train()
    layer.eval()
    assert torch.equal(model(x), expected)


def test_adding_again_replaces_and_plain_takes_out():
    layer, x = norm(), values(4, 3, 5, 5)
    expected = copy.deepcopy(layer)(x)
    once = add_noise(copy.deepcopy(layer), "constant", 0.5, 0.2, seed=0)
    twice = add_noise(add_noise(layer, "random", 9.0, 9.0, seed=0), "constant", 0.5, 0.2, seed=0)
    assert type(twice) is type(once)
    assert torch.equal(twice(x), once(x))
    assert type(plain(twice)) is nn.BatchNorm2d
    assert torch.equal(twice(x), expected)
    set_step(twice, 3)
    assert "noise" not in vars(twice)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("affine", [True, False])
def test_other_precisions_keep_theirs(dtype, affine):
    layer, x = norm(affine).to(dtype), values(4, 3, 5, 5)
    add_noise(layer, "random", 0.2, 0.1, seed=0)
    reference = add_noise(copy.deepcopy(layer).double(), "random", 0.2, 0.1, seed=0)
    output = layer(x.to(dtype))
    assert output.dtype == dtype
    rtol = RTOL["batch32" if dtype == torch.float32 else "bfloat16"]
    expected = reference(x.to(dtype).double())
    torch.testing.assert_close(output.double(), expected, rtol=0, atol=4 * rtol)


def test_every_norm_of_a_network_draws_for_itself():
    model = add_noise(timm.create_model("resnet20_cifar"), "random", 0.2, 0.1, seed=0)
    noises = [module.noise for module in model.modules() if hasattr(module, "noise")]
    assert [noise.layer for noise in noises] == list(range(len(noises)))
    assert len(noises) == sum(isinstance(module, nn.BatchNorm2d) for module in model.modules())
    set_step(synchronise(model), 5)
    assert {module.noise.step for module in model.modules() if hasattr(module, "noise")} == {5}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("gaussian", 1.0, 0.0), UnknownNameError, r"no noise called 'gaussian'. Known: constant"),
        (("random", -0.1, 0.1), RecipeError, r"random noise was given a = -0.1.*standard dev"),
        (("random", 0.1, -0.1), RecipeError, r"b = -0.1; set `noise_a` and `noise_b`"),
        (("constant", float("nan"), 0.0), RecipeError, r"constant noise was given a = nan"),
        (("constant", 1.0, float("inf")), RecipeError, r"b = inf; set"),
    ],
)
def test_refuses_what_is_no_noise(arguments, error, message):
    with pytest.raises(error, match=message):
        add_noise(norm(), *arguments, seed=0)


def test_networks_without_the_norm_in_question_are_refused():
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    with pytest.raises(RecipeError, match=r"batch norms, and Sequential has none; set `noise`"):
        add_noise(model, "constant", 0.5, 0.5, seed=0)
    with pytest.raises(RecipeError, match=r"instance norms .*Sequential has none; set `batch_n"):
        add_batch_noise(model)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("affine", [True, False])
def test_an_instance_norm_becomes_a_batch_norm_with_its_parameters(axes, affine):
    old = [nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d][axes - 1]
    new = [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d][axes - 1]
    before = old(3, eps=1e-3, momentum=0.4, affine=affine).double()
    model = nn.Sequential(nn.Conv2d(1, 1, 1).double(), before)
    assert add_batch_noise(model) is model
    after = model[1]
    assert type(after) is new
    assert (after.num_features, after.eps, after.momentum) == (3, 1e-3, 0.4)
    assert (after.affine, after.weight, after.bias) == (affine, before.weight, before.bias)
    assert after.running_var.dtype == torch.float64
    x = values(4, 3, *[5] * axes)
    expected = new(3, eps=1e-3, affine=affine).double()(x)
    assert torch.equal(after(x), expected)
    assert after.eval()(x).shape == x.shape


def test_batch_noise_keeps_sharing_modes_and_everything_else():
    shared = nn.InstanceNorm2d(3).eval()
    model = nn.ModuleDict({"a": shared, "b": nn.Sequential(shared, nn.ReLU()), "c": shared})
    add_batch_noise(model)
    assert type(model["a"]) is nn.BatchNorm2d
    assert model["a"] is model["b"][0] is model["c"]
    assert not model["a"].training
    assert type(model["b"][1]) is nn.ReLU
    assert type(add_batch_noise(nn.InstanceNorm1d(2))) is nn.BatchNorm1d
    assert add_noise(model, "constant", 0.5, 0.5, seed=0)["c"].noise.layer == 0


def test_a_subclass_of_an_instance_norm_is_refused_and_nothing_changes():
    class Conditional(nn.InstanceNorm2d):
        pass

    model = nn.Sequential(nn.InstanceNorm2d(2), Conditional(2))
    with pytest.raises(RecipeError, match=r"class Conditional may do more.*set `batch_noise`"):
        add_batch_noise(model)
    assert type(model[0]) is nn.InstanceNorm2d
