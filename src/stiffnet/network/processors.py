"""Preparations that do what an image processor of transformers does.

Each class of processors has its own rules, which its description does not state. So it is asked:
what it makes of black, white and coloured pictures tells what it does, and proves our reading.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from stiffnet.data.decode import Middle
from stiffnet.data.images import Preparation

SIZES = ((480, 360), (500, 750))
"""Width and height of the pictures: of two proportions, neither one square."""

ROUNDING = 3.0
"""Largest difference, in levels of 255. Scaling first and cropping then, as transformers does,
moves pixels by up to a half, which is one level in these pictures; 8-bit steps add another."""


def preparation_like(processor: Any, channels: int) -> Preparation:
    """Find the preparation that does to images what a processor does, or raise ValueError."""
    black, white = (_flat(processor, channels, level) for level in (0, 255))
    std = [1 / float(step) for step in white - black]
    mean = [-float(low) * deviation for low, deviation in zip(black, std, strict=True)]
    pictures = [_picture(size, channels) for size in SIZES]
    expected = [_processed(processor, picture) for picture in pictures]
    if len({result.shape for result in expected}) != 1:
        raise ValueError("images keep sizes of their own")
    tall, wide = expected[0].shape[1:]
    resample = getattr(processor, "resample", None)
    for crop in _crops(processor, tall):
        for mode in ("center", "squash"):
            found = Preparation(
                (channels, tall, wide),
                tuple(map(_as_written, mean)),
                tuple(map(_as_written, std)),
                crop,
                Image.Resampling(2 if resample is None else resample).name.lower(),
                mode,
            )
            ours = [found(Middle(found)(picture, 0)[None])[0] for picture in pictures]
            if all(_close(*pair, found) for pair in zip(ours, expected, strict=True)):
                return found
    raise ValueError("its processor orders colours, or crops, in a way of its own")


def _as_written(value: float) -> float:
    """A number to the digits that float32 has for sure, so that 0.48499998 is 0.485 again."""
    return float(f"{value:.6g}") + 0.0  # no -0.0


def _crops(processor: Any, side: int) -> Iterator[float]:
    """Shares of the sides that a crop may keep."""
    said = getattr(processor, "crop_pct", None)
    if said:
        yield float(said)
    size = dict(getattr(processor, "size", None) or {})
    scaled = next((size[name] for name in ("height", "shortest_edge") if size.get(name)), side)
    for enlarged in (1, 256 / 224):  # LeViT's is not in its description
        yield min(side / int(scaled * enlarged), 1.0)
    yield 1.0


def _processed(processor: Any, picture: Image.Image) -> Tensor:
    result: Tensor = processor(images=[picture], return_tensors="pt")["pixel_values"]
    if result.ndim != 4 or len(result) != 1:
        raise ValueError("it makes more of an image than one image")
    return result[0].float()


def _flat(processor: Any, channels: int, level: int) -> Tensor:
    """What becomes of a picture of one level, in each channel."""
    mode = "L" if channels == 1 else "RGB"
    result = _processed(processor, Image.new(mode, SIZES[0], (level,) * len(mode)))
    if len(result) != channels:
        raise ValueError(f"{len(result)} channels, where the network takes {channels}")
    return result.flatten(1).double().mean(1)


def _picture(size: tuple[int, int], channels: int) -> Image.Image:
    """A picture that differs from place to place, but smoothly: ways of resampling agree on it."""
    width, height = size
    across, down = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    colours = [across, down, (across + 255 - down) / 2]
    if channels == 1:
        return Image.fromarray(((across + 2 * down) / 3).round().astype(np.uint8))
    return Image.fromarray(np.stack(colours, axis=-1).round().astype(np.uint8))


def _close(ours: Tensor, expected: Tensor, preparation: Preparation) -> bool:
    levels = torch.tensor(preparation.std).view(-1, 1, 1) * 255
    return float(((ours - expected) * levels).abs().max()) <= ROUNDING
