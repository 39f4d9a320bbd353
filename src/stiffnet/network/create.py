"""A network built by its name: timm's and ours, torchvision's, or a detector on one of them."""

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import timm
import torch
import torchvision
from torch import nn

from stiffnet.errors import CheckpointError
from stiffnet.network.attention_text import attach_text
from stiffnet.network.detector import body_of, create_detector
from stiffnet.network.model_names import (
    TORCHVISION,
    detector_parts,
    is_classifier_name,
    is_detector_name,
    is_model_name,
    unknown_model,
)
from stiffnet.network.pretrained import fetching, torchvision_weights


def create_model(
    name: str,
    *,
    num_classes: int | None = None,
    in_chans: int | None = None,
    image_size: int | None = None,
    attention: str | None = None,
    pretrained: bool = False,
    seed: int = 0,
) -> nn.Module:
    """Build one network; random weights depend on `seed` alone.

    `name` is a timm name, ours included, or ``torchvision:NAME``. `num_classes` is the number of
    outputs and `in_chans` that of the images' channels; None leaves both as the network has them.
    `image_size` matters to networks that are built for one size, as vision transformers are;
    others take any. `attention` attaches a module to every step, as in ``"se"`` or
    ``"se,reduction=8,where=layer3.*"``: as its authors initialise it, or, with `pretrained`
    weights, so that it changes nothing at first. ``"asr:se"`` feeds it a learnt constant, and
    ``"asr:se+se"`` attaches one module behind the other. The backbone's own weights are the same
    with it and without.

    torch's own random numbers continue afterwards as if nothing had been drawn. Of torchvision,
    classifiers, detectors and segmenters are known; they take three channels, whatever the images
    have.

    ``fasterrcnn:NAME`` is torchvision's Faster R-CNN with a feature pyramid on the backbone of that
    name, and ``fasterrcnn-small:NAME`` has a quarter of its width. Modules go to the backbone's
    steps, its `pretrained` weights are those of the backbone, and `num_classes` does not count the
    background.

    Raises:
        UnknownNameError: If neither timm nor torchvision nor we have a network of that name.
        CheckpointError: If the network cannot be built so, or has no pretrained weights here.
    """
    if not is_model_name(name):
        raise unknown_model(name)
    sizes = {"num_classes": num_classes, "in_chans": in_chans, "image_size": image_size}
    for option, value in sizes.items():
        if value is not None and value < 1:
            raise CheckpointError(f"`{option}` is {value}; a network needs at least 1.")
    is_detector, is_torchvision = is_detector_name(name), name.startswith(TORCHVISION)
    if (is_detector or is_torchvision) and in_chans not in (None, 3):
        raise CheckpointError(
            f"{name} takes 3 channels, and `in_chans` is {in_chans}. Leave it out: grey images "
            "are repeated over the channels."
        )
    published = detector_parts(name)[1] if is_detector else name
    with fetching(published) if pretrained else contextlib.nullcontext(), seeded(seed):
        if is_detector:
            model = create_detector(
                name, num_classes=num_classes, image_size=image_size, pretrained=pretrained
            )
        elif is_torchvision:
            model = _create_torchvision(name, num_classes, image_size, pretrained)
        else:
            model = _create_timm(name, sizes, pretrained)
    if attention is not None:
        gated = body_of(model) if is_detector else model
        with seeded(seed):
            attach_text(gated, attention, start="identity" if pretrained else "paper")
    return model


def _create_timm(name: str, sizes: Mapping[str, int | None], pretrained: bool) -> nn.Module:
    config, options = timm.get_pretrained_cfg(name), dict(sizes)
    image_size = options.pop("image_size")
    if image_size is not None and config is not None and config.fixed_input_size:
        options["img_size"] = image_size
    try:
        model: nn.Module = timm.create_model(name, pretrained=pretrained, **options)
    except (TypeError, AssertionError, ValueError) as error:
        if pretrained:
            raise
        raise CheckpointError(
            f"timm cannot build {name} with num_classes={sizes['num_classes']} and "
            f"in_chans={sizes['in_chans']}: {error}. Leave out what this network does not take."
        ) from error
    return model


def _create_torchvision(
    name: str, num_classes: int | None, image_size: int | None, pretrained: bool
) -> nn.Module:
    options: dict[str, Any] = {}
    if image_size is not None and "vit_" in name:
        options["image_size"] = image_size
    if not is_classifier_name(name):
        options["weights_backbone"] = None  # torchvision would download some
    if num_classes is not None:
        options["num_classes"] = num_classes
    if pretrained:
        options["weights"] = torchvision_weights(name)
        published = len(options["weights"].meta["categories"])
        if num_classes not in (None, published):
            raise CheckpointError(
                f"torchvision's weights for {name} have {published} classes, and `num_classes` is "
                f"{num_classes}. Leave it out, or leave out the pretrained weights."
            )
    with warnings.catch_warnings():
        # Two of them announce that their initialisation will change; the seed fixes today's.
        warnings.simplefilter("ignore", FutureWarning)
        model: nn.Module = torchvision.models.get_model(name.removeprefix(TORCHVISION), **options)
    return model


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from the CPU's random numbers as of `seed`; give the caller's back."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
