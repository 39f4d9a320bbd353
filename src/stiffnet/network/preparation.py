"""What a network expects of its images, as its publishers say."""

from dataclasses import replace
from typing import Any

import timm.data
from torch import nn

from stiffnet.data.images import Preparation
from stiffnet.network.model_names import TORCHVISION, is_classifier_name, is_detector_name
from stiffnet.network.pretrained import torchvision_weights

IMAGENET_MEAN = timm.data.IMAGENET_DEFAULT_MEAN
IMAGENET_STD = timm.data.IMAGENET_DEFAULT_STD


def preparation_of(model: nn.Module, name: str, *, in_chans: int | None = None) -> Preparation:
    """What `model`, built from `name`, expects of its images.

    With another number of channels than the published weights had, each channel is normalised by
    the mean of theirs.
    """
    if name.startswith(TORCHVISION) or is_detector_name(name):
        published = _dense_preparation(model, name) or _torchvision_preparation(name)
    else:
        config = timm.data.resolve_model_data_config(model)
        published = Preparation(
            config["input_size"],
            tuple(config["mean"]),
            tuple(config["std"]),
            config["crop_pct"],
            config["interpolation"],
            config["crop_mode"],
        )
    channels, height, width = published.input_size
    channels = in_chans or channels
    mean, std = published.mean, published.std
    if channels != len(mean):
        mean, std = ((sum(values) / len(values),) * channels for values in (mean, std))
    return replace(published, input_size=(channels, height, width), mean=mean, std=std)


def _dense_preparation(model: nn.Module, name: str) -> Preparation | None:
    """What a detector, or a segmenter of torchvision, expects; None for a classifier.

    A detector scales and normalises images itself, so it gets them whole and as they are.
    """
    if is_classifier_name(name):
        return None
    own: Any = getattr(model, "transform", None)
    if own is None:
        side = int(torchvision_weights(name).transforms().resize_size[0])
        return Preparation((3, side, side), IMAGENET_MEAN, IMAGENET_STD)
    width, height = own.fixed_size or (own.min_size[-1], own.min_size[-1])
    return Preparation((3, height, width), (0.0,) * 3, (1.0,) * 3)


def _torchvision_preparation(name: str) -> Preparation:
    try:
        published = torchvision_weights(name).transforms()
        side, resized = int(published.crop_size[0]), int(published.resize_size[0])
        mean, std = tuple(published.mean), tuple(published.std)
        sampling = published.interpolation.value
        return Preparation((3, side, side), mean, std, side / max(side, resized), sampling)
    except (AttributeError, ValueError):  # a network without published weights
        return Preparation((3, 224, 224), IMAGENET_MEAN, IMAGENET_STD)
