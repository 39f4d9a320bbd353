"""How a picture looks to a trained network: content, style and smoothness as losses.

The network is VGG16, read up to its tenth convolution. Features are those after a ReLU, called as
Johnson et al. (2016) call them: content is compared at relu2_2, style by the Gram matrices of
relu1_2, relu2_2, relu3_3 and relu4_3.
"""

import os
from pathlib import Path

import torch
import torchvision
from torch import Tensor, nn

from stiffnet.errors import CheckpointError
from stiffnet.network.pretrained import IMAGENET_MEAN, IMAGENET_STD
from stiffnet.network.weights import read_state_dict
from stiffnet.words import few

RANDOM = "random"  # in the place of a weights file: a narrow VGG16 of fixed random weights
NARROW = 8  # by how much it is narrower
SEED = 0  # of its weights, whatever the run's
PLAN = torchvision.models.vgg.cfgs["D"][:13]  # VGG16's channels and poolings up to relu4_3
TAPS = (3, 8, 15, 22)  # places of relu1_2, relu2_2, relu3_3 and relu4_3 among its layers
CONTENT = 1  # which of them content is compared at
SHOWN = 3  # names of tensors in a sentence
# Pixels are prepared as the weights IMAGENET1K_V1 want them. Others of VGG16 fit as well and judge
# wrongly: IMAGENET1K_FEATURES, which is Caffe's, takes pixels from 0 to 255. So these are known by
# the red part of their first filter, of which half precision keeps three digits.
FIRST_FILTER = ((-0.5537, 0.1427, 0.5290), (-0.5831, 0.3566, 0.7657), (-0.6902, -0.0480, 0.4841))
ROUNDING = 0.005


def gram(features: Tensor) -> Tensor:
    """Return how channels go together, (sample, channel, channel): mean products over all places.

    The sums of products are divided by the number of features, channels included.
    """
    flat = features.flatten(2)
    return flat @ flat.transpose(1, 2) / flat[0].numel()


def total_variation(pictures: Tensor) -> Tensor:
    """Return how much neighbouring pixels differ, one number a picture.

    That is the mean square of the differences to the pixel below, plus that to the right.
    """
    below = (pictures[:, :, 1:] - pictures[:, :, :-1]).square().flatten(1).mean(1)
    right = (pictures[..., 1:] - pictures[..., :-1]).square().flatten(1).mean(1)
    return below + right


class LossNetwork(nn.Module):
    """VGG16 up to relu4_3; it stays as it is."""

    mean: Tensor
    std: Tensor

    def __init__(self, narrower: int = 1) -> None:
        super().__init__()
        plan = [each if isinstance(each, str) else each // narrower for each in PLAN]
        self.features = torchvision.models.vgg.make_layers(plan)
        for name, values in (("mean", IMAGENET_MEAN), ("std", IMAGENET_STD)):
            self.register_buffer(name, torch.tensor(values).view(1, 3, 1, 1))
        self.requires_grad_(False).eval()

    def forward(self, pictures: Tensor, last: int = len(TAPS) - 1) -> list[Tensor]:
        """Return the features of pictures, in pixels from 0 to 1, at `TAPS` up to number `last`."""
        found, states = [], (pictures - self.mean) / self.std
        for place, layer in enumerate(self.features):
            states = layer(states)
            if place in TAPS:
                found.append(states)
            if len(found) > last:
                break
        return found


def open_loss_network(spec: str | os.PathLike[str]) -> LossNetwork:
    """Read the loss network from a file of VGG16's weights, in torchvision's names.

    Layers that the losses do not need may be in it or not. ``random`` is a network of an eighth of
    the channels with fixed random weights: it needs no file, and its losses are good for trials.

    Raises:
        CheckpointError: If the file is of another network, or has other weights of this one.
        StiffnetError: One of its other kinds, if the file cannot be read.
    """
    if spec == RANDOM:
        return _random()
    state = read_state_dict(Path(spec))
    with torch.device("meta"):
        model = LossNetwork()
    wanted = {name: tensor.shape for name, tensor in model.features.state_dict().items()}
    found = {name: state.values.get(f"features.{name}") for name in wanted}
    given = {
        name: tensor.float()
        for name, tensor in found.items()
        if isinstance(tensor, Tensor) and tensor.shape == wanted[name]
    }
    if wrong := [f"features.{name}" for name in wanted if name not in given]:
        raise CheckpointError(
            f"{spec} is not of VGG16: it lacks {few(wrong, SHOWN)}, or has them in another shape. "
            "Give torchvision's weights of `vgg16`, without batch norms."
        )
    if not torch.allclose(
        given["0.weight"][0, 0], torch.tensor(FIRST_FILTER), rtol=0.0, atol=ROUNDING
    ):
        raise CheckpointError(
            f"{spec} is of VGG16, but its weights are not those that torchvision calls "
            "IMAGENET1K_V1, for which pictures are prepared here. Give "
            '`torchvision.models.vgg16(weights="IMAGENET1K_V1").state_dict()`.'
        )
    for name, tensor in given.items():
        if not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(
                f"features.{name} in {spec} is not finite. Give torchvision's weights of `vgg16`."
            )
    model = LossNetwork()
    model.features.load_state_dict(given)
    return model.to(memory_format=torch.channels_last)


def _random() -> LossNetwork:
    """Make a narrow network whose features neither vanish nor grow."""
    chance = torch.Generator().manual_seed(SEED)
    with torch.random.fork_rng(devices=[]):
        model = LossNetwork(NARROW)
    for layer in model.features:
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=chance)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
    return model.to(memory_format=torch.channels_last)
