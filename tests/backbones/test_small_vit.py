"""ViT-Ti for small images: its size, its steps, and images of another size."""

import pytest
import timm
import torch

from stiffnet.trajectory.steps import steps

WIDTH, DEPTH = 192, 12
VARIANTS = {"vit_tiny_cifar": (32, 4), "vit_tiny_stl": (96, 8)}  # sides of images and patches


def linear(inputs, outputs):
    return inputs * outputs + outputs


@pytest.mark.parametrize("name", VARIANTS)
def test_the_number_of_parameters_has_a_closed_form(name):
    size, patch = VARIANTS[name]
    tokens = (size // patch) ** 2 + 1
    block = (
        2 * 2 * WIDTH
        + linear(WIDTH, 3 * WIDTH)
        + linear(WIDTH, WIDTH)
        + linear(WIDTH, 4 * WIDTH)
        + linear(4 * WIDTH, WIDTH)
    )
    embedding = linear(3 * patch * patch, WIDTH) + WIDTH + tokens * WIDTH
    expected = embedding + DEPTH * block + 2 * WIDTH + linear(WIDTH, 10)
    with torch.device("meta"):
        assert sum(p.numel() for p in timm.create_model(name).parameters()) == expected


@pytest.mark.parametrize("name", VARIANTS)
def test_there_are_two_steps_a_block_in_one_stage(name):
    size, patch = VARIANTS[name]
    with torch.device("meta"):
        found = steps(timm.create_model(name), torch.empty(1, 3, size, size))
    assert len(found) == 2 * DEPTH
    assert all(step.identity for step in found)
    assert {(step.stage, step.shape) for step in found} == {(0, ((size // patch) ** 2 + 1, WIDTH))}


@pytest.mark.parametrize("name", VARIANTS)
def test_at_its_own_size_nothing_is_interpolated(name):
    size, _ = VARIANTS[name]
    free = timm.create_model(name, num_classes=3).eval()
    fixed = timm.create_model(name, num_classes=3, dynamic_img_size=False).eval()
    fixed.load_state_dict(free.state_dict())
    images = torch.rand(1, 3, size, size)
    assert torch.equal(free(images), fixed(images))


def test_a_larger_image_has_more_patches():
    with torch.device("meta"):
        model = timm.create_model("vit_tiny_cifar")
        assert model.forward_features(torch.empty(1, 3, 96, 96)).shape == (1, 24 * 24 + 1, WIDTH)
        built_for_it = timm.create_model("vit_tiny_cifar", img_size=96)
    assert built_for_it.pos_embed.shape == (1, 24 * 24 + 1, WIDTH)
