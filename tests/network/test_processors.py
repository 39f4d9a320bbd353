"""Laws of preparations that do what a processor of transformers does."""

import numpy as np
import pytest
import torch
from PIL import Image

from stiffnet.data.decode import Middle
from stiffnet.network.processors import preparation_like

transformers = pytest.importorskip("transformers")

CASES = {
    "LevitImageProcessor": {},
    "ConvNextImageProcessor": {},  # from 384 pixels on, it crops nothing
    "PoolFormerImageProcessor": {},
    "EfficientNetImageProcessor": {},  # divides by the deviation twice
    "DeiTImageProcessor": {},
    "CLIPImageProcessor": {},
    "ViTImageProcessor": {"do_rescale": False},
    "MobileViTImageProcessor": {
        "do_flip_channel_order": False,  # and never normalises
        "size": {"shortest_edge": 288},
    },
}


@pytest.mark.parametrize("kind", CASES)
def test_images_are_those_of_the_processor(kind):
    processor = getattr(transformers, kind)(**CASES[kind])
    found = preparation_like(processor, 3)
    down, across = np.mgrid[:300, :410]
    waves = [np.sin(across / 40), np.cos(down / 30), np.sin((across + down) / 50)]
    picture = Image.fromarray((127 + 120 * np.stack(waves, -1)).astype(np.uint8))
    expected = processor(images=picture, return_tensors="pt")["pixel_values"][0]
    ours = found(Middle(found)(picture, 0)[None])[0]
    assert ours.shape == expected.shape
    off = (ours - expected).abs().amax((1, 2)) * torch.tensor(found.std)
    assert off.max() * 255 < 6  # levels: half a pixel of a wave of 4 levels a pixel, and rounding


@pytest.mark.parametrize(
    ("kind", "options", "match"),
    [
        ("MobileViTImageProcessor", {"size": {"shortest_edge": 288}}, "orders colours"),
        ("ViTImageProcessor", {"do_resize": False}, "sizes of their own"),
        ("CLIPImageProcessor", {"do_resize": False}, "or crops"),
    ],
)
def test_what_no_preparation_does_is_refused(kind, options, match):
    with pytest.raises(ValueError, match=match):
        preparation_like(getattr(transformers, kind)(**options), 3)


def test_images_of_one_channel_are_asked_about_in_grey():
    processor = transformers.ViTImageProcessor(image_mean=[0.4], image_std=[0.2])
    found = preparation_like(processor, 1)
    assert (found.input_size, found.mean, found.std) == ((1, 224, 224), (0.4,), (0.2,))
