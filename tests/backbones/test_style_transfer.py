"""Johnson's network: its size, its steps, and what either norm sees."""

import pytest
import timm
import torch

import stiffnet
from stiffnet.backbones.style_transfer import MODELS, SMALLEST
from tolerances import RTOL

NAMES = [own.name for own in MODELS]
CONVOLUTIONS = [(3, 32, 9), (32, 64, 3), (64, 128, 3), *[(128, 128, 3)] * 10, (128, 64, 3),
                (64, 32, 3)]  # fmt: skip


@pytest.fixture(params=NAMES)
def model(request):
    return stiffnet.create_model(request.param)


def pictures(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def test_its_parameters_are_those_of_its_layers(model):
    layers = sum(before * after * side**2 + 2 * after for before, after, side in CONVOLUTIONS)
    last = 32 * 3 * 81 + 3
    assert sum(p.numel() for p in model.parameters()) == layers + last == 1_677_635


def test_its_five_blocks_are_its_steps(model):
    found = stiffnet.steps(model.eval(), pictures(1, 3, 24, 24))
    assert [step.name for step in found] == [f"blocks.{number}" for number in range(5)]
    assert {step.shape for step in found} == {(128, 6, 6)}


@pytest.mark.parametrize("size", [(SMALLEST, SMALLEST), (16, 16), (17, 30), (31, 6)])
def test_pictures_keep_their_size_and_stay_pixels(model, size):
    made = model.eval()(pictures(2, 3, *size))
    assert made.shape == (2, 3, *size)
    assert made.min() >= 0
    assert made.max() <= 1


def test_a_picture_is_not_shifted_by_odd_sizes():
    """What happens far from an edge does not depend on where the picture ends."""
    model = stiffnet.create_model("style_bn").double().eval()
    wide = pictures(1, 3, 128, 128).double()
    corners = [model(given)[..., :8, :8] for given in (wide, wide[..., :125, :127])]
    torch.testing.assert_close(*corners, rtol=RTOL["float64"], atol=0.0)


def test_while_it_trains_only_batch_norms_show_it_the_other_pictures():
    batch = pictures(3, 3, 16, 16)
    for name, blind in (("style_in", True), ("style_bn", False)):
        model = stiffnet.create_model(name).train()
        together, alone = model(batch)[:1], model(batch[:1])
        assert torch.allclose(together, alone, rtol=0.0, atol=1e-5) is blind


def test_timm_builds_it_for_pixels():
    config = timm.create_model("style_in").pretrained_cfg
    assert (config["mean"], config["std"]) == ((0.0,) * 3, (1.0,) * 3)
    assert (config["num_classes"], config["input_size"]) == (3, (3, 256, 256))


def test_every_parameter_gets_a_gradient(model):
    model.train()(pictures(2, 3, 12, 12)).square().sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or p.grad.isnan().any()] == []
