"""What pictures look like to VGG16: Gram matrices, total variation, and whose weights are taken."""

import numpy as np
import pytest
import safetensors.torch
import torch
import torchvision
from torch import nn

from reference import perceptual as reference
from stiffnet.errors import CheckpointError, StorageError
from stiffnet.train.perceptual import (
    FIRST_FILTER,
    LossNetwork,
    gram,
    open_loss_network,
    total_variation,
)
from tolerances import RTOL

CLOSE = RTOL["float64"]


def trained():
    """Return VGG16's layers with the filter that IMAGENET1K_V1 begins with."""
    layers = LossNetwork().features
    layers[0].weight.data[0, 0] = torch.tensor(FIRST_FILTER)
    return layers


def state_of(layers):
    return {f"features.{name}": value.clone() for name, value in layers.state_dict().items()}


def random(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_gram_matrix_is_the_reference_s():
    features = random(2, 5, 3, 4)
    expected = np.stack([reference.gram(each) for each in features.numpy()])
    np.testing.assert_allclose(gram(features).numpy(), expected, rtol=CLOSE)


def test_the_gram_matrix_forgets_where_things_are():
    features = random(1, 5, 4, 4)
    moved = features.flatten(2)[..., torch.randperm(16)].reshape(features.shape)
    torch.testing.assert_close(gram(moved), gram(features), rtol=CLOSE, atol=0.0)


def test_total_variation_is_the_reference_s_and_none_of_a_plain_picture():
    pictures = random(2, 3, 5, 7)
    expected = [reference.total_variation(each) for each in pictures.numpy()]
    np.testing.assert_allclose(total_variation(pictures).numpy(), expected, rtol=CLOSE)
    assert total_variation(torch.full((1, 3, 4, 4), 0.3)).item() == 0.0
    slope = torch.arange(6.0, dtype=torch.float64).expand(1, 3, 5, 6)
    assert total_variation(slope).item() == 1.0  # each step to the right is one, none goes down


def test_features_are_those_of_the_layers_that_the_reference_counts():
    eye, pictures = open_loss_network("random").double(), random(2, 3, 19, 16)
    weights = {name: value.numpy() for name, value in eye.features.state_dict().items()}
    for number, picture in enumerate(pictures.numpy()):
        expected = reference.features(weights, picture)
        for found, wanted in zip(eye(pictures), expected, strict=True):
            np.testing.assert_allclose(found[number].numpy(), wanted, rtol=1e-9, atol=1e-12)
    assert len(eye(pictures, last=1)) == 2


def test_the_random_network_is_always_the_same_and_draws_nothing():
    torch.manual_seed(1)
    first = open_loss_network("random").state_dict()
    after = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), after)
    again = open_loss_network("random").state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_vgg16_s_layers_are_torchvision_s_and_take_its_file(tmp_path):
    with torch.device("meta"):
        theirs = torchvision.models.vgg16().features[:23]
    ours = trained()
    assert [type(layer) for layer in theirs] == [type(layer) for layer in ours]
    state = state_of(ours)
    extra = {"features.24.weight": torch.zeros(1), "classifier.0.bias": torch.zeros(1)}
    safetensors.torch.save_file(state | extra, tmp_path / "vgg16.safetensors")
    torch.save(state | extra, tmp_path / "vgg16.pth")
    picture = torch.rand(1, 3, 8, 8)
    for file in tmp_path.iterdir():
        eye = open_loss_network(file)
        assert torch.equal(eye.features[21].weight, ours[21].weight)
        assert not any(each.requires_grad for each in eye.parameters())
        assert [each.shape[1] for each in eye(picture)] == [64, 128, 256, 512]


def narrow(places, channels=4):
    return {
        f"features.{place}.{part}": torch.zeros((channels,) * (4 if part == "weight" else 1))
        for place in places
        for part in ("weight", "bias")
    }


@pytest.mark.parametrize(
    "state",
    [
        narrow((0, 3, 7, 10)),  # another plan, as with batch norms
        narrow((0, 2, 5, 7, 10, 12, 14, 17, 19, 21)),  # the plan, in other shapes
        nn.Linear(2, 2).state_dict(),
    ],
    ids=["plan", "shapes", "linear"],
)
def test_weights_of_another_network_are_refused(state, tmp_path):
    safetensors.torch.save_file(state, tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match=r"other.safetensors is not of VGG16: it lacks feat"):
        open_loss_network(tmp_path / "other.safetensors")


def test_weights_that_are_not_finite_or_not_there_are_refused(tmp_path):
    state = state_of(trained())
    state["features.21.bias"][3] = torch.nan
    safetensors.torch.save_file(state, tmp_path / "bad.safetensors")
    with pytest.raises(CheckpointError, match=r"features.21.bias in .* is not finite"):
        open_loss_network(tmp_path / "bad.safetensors")
    with pytest.raises(StorageError, match=r"none\.safetensors"):
        open_loss_network(tmp_path / "none.safetensors")


@pytest.mark.parametrize(
    "alter",
    [
        lambda weight: torch.nn.init.kaiming_normal_(weight, generator=torch.Generator()),
        lambda weight: weight.flip(1),  # blue first, as Caffe has it
        lambda weight: weight / 255,  # for pixels from 0 to 255
        lambda weight: (100 * weight).to(torch.int8),
    ],
    ids=["not trained", "blue first", "other range", "quantised"],
)
def test_other_weights_of_vgg16_are_refused(alter, tmp_path):
    state = state_of(trained())
    state["features.0.weight"] = alter(state["features.0.weight"]).contiguous()
    safetensors.torch.save_file(state, tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match=r"of VGG16, but its weights are not .*IMAGENET1K_V1"):
        open_loss_network(tmp_path / "other.safetensors")


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_the_weights_are_known_in_half_precision(precision, tmp_path):
    state = {name: value.to(precision) for name, value in state_of(trained()).items()}
    safetensors.torch.save_file(state, tmp_path / "half.safetensors")
    eye = open_loss_network(tmp_path / "half.safetensors")
    assert eye.features[0].weight.dtype == torch.float32
