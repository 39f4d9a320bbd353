"""Random crops and mirror images of whole batches of 8-bit pixels.

Each sample's crop is read off its own row of random numbers (see `chance`), so it does not depend
on the batch that it comes in. Normalisation comes afterwards, so what the padding adds is black.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from stiffnet.data.chance import uniforms
from stiffnet.errors import DataError

Crop = Literal["none", "pad", "resized"]
Chances = npt.NDArray[np.float64]  # a sample's random numbers in each row

ATTEMPTS = 10  # at a box that fits into the image
FLIP, ROW, COLUMN, SHAPES = 0, 1, 2, slice(3, 3 + 2 * ATTEMPTS)  # what each number decides


@dataclass(frozen=True)
class Augmentation:
    """What is varied at random each time that a training image is shown.

    Args:
        crop: ``"pad"`` shifts the image by up to `padding` pixels within a black frame.
            ``"resized"`` stretches a part of it, of a share of the area within `scale` and a ratio
            of width to height within `ratio`, to the size that the network takes; this is what
            ImageNet is trained with. ``"none"`` shows all of it.
        padding: Width of the black frame, in pixels of the image as it is stored.
        flip: Show every second image, at random, as in a mirror.
        scale: Least and largest share of the area.
        ratio: Least and largest ratio of width to height.
    """

    crop: Crop = "pad"
    padding: int = 4
    flip: bool = True
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        if self.crop not in get_args(Crop):
            raise DataError(
                f"`crop` is {self.crop!r}. Give one of {', '.join(map(repr, get_args(Crop)))}."
            )
        if self.padding < 0:
            raise DataError(f"`padding` is {self.padding}. Give 0 or more pixels.")
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise DataError(f"`scale` is {self.scale}. Give two shares, 0 < least <= largest <= 1.")
        if not 0 < self.ratio[0] <= self.ratio[1] < math.inf:
            raise DataError(f"`ratio` is {self.ratio}. Give two ratios, 0 < least <= largest.")

    def __call__(self, images: Tensor, size: tuple[int, int], chances: Chances) -> Tensor:
        """Vary uint8 images (batch, channel, height, width); the images given stay as they were.

        A resized crop is brought to `size`, height and width; `chances` are those of these samples.
        """
        if self.crop == "resized":
            height, width = images.shape[2:]
            images = resize_boxes(images, self.boxes(chances, height, width), size)
        elif self.crop == "pad":
            images = pad_and_crop(images, chances, self.padding)
        return self.mirror(images, chances)

    def chances(self, seed: int, epoch: int, samples: npt.NDArray[np.int64]) -> Chances:
        """Return the random numbers that decide on these samples in this epoch."""
        draws = SHAPES.stop if self.crop == "resized" else COLUMN + 1
        return uniforms(seed, epoch, samples, draws)

    def boxes(self, chances: Chances, height: int, width: int) -> npt.NDArray[np.int64]:
        """Return a random box of each image of that size: top, left, height and width.

        The share of the area is uniform in `scale`, the logarithm of the ratio in that of `ratio`,
        and the place is uniform. Of ten such shapes the first that fits into the image is taken; if
        none does, the largest box in the middle whose ratio is allowed.
        """
        areas, ratios = chances[:, SHAPES].reshape(-1, ATTEMPTS, 2).transpose(2, 0, 1)
        area = height * width * (self.scale[0] + areas * (self.scale[1] - self.scale[0]))
        least, largest = (math.log(bound) for bound in self.ratio)
        ratio = np.exp(least + ratios * (largest - least))
        tall, wide = np.rint(np.sqrt(area / ratio)), np.rint(np.sqrt(area * ratio))
        fits = (tall >= 1) & (tall <= height) & (wide >= 1) & (wide <= width)
        first = np.arange(len(chances)), fits.argmax(1)
        found = fits.any(1)
        most_tall = max(1, min(height, round(width / self.ratio[0])))
        most_wide = max(1, min(width, round(height * self.ratio[1])))
        tall = np.where(found, tall[first], most_tall)
        wide = np.where(found, wide[first], most_wide)
        top = np.where(found, chances[:, ROW] * (height - tall + 1), (height - most_tall) / 2)
        left = np.where(found, chances[:, COLUMN] * (width - wide + 1), (width - most_wide) / 2)
        return np.stack([top, left, tall, wide], 1).astype(np.int64)

    def mirror(self, images: Tensor, chances: Chances) -> Tensor:
        """Turn about half of the images left to right, if `flip` is on."""
        if not self.flip:
            return images
        turned = chances[:, FLIP] < 0.5
        pixels = images.numpy().copy()
        pixels[turned] = pixels[turned][..., ::-1]
        return torch.from_numpy(pixels)


def pad_and_crop(images: Tensor, chances: Chances, padding: int) -> Tensor:
    """Cut each image, at its own size and a random place, out of itself in a black frame."""
    height, width = images.shape[2:]
    padded = F.pad(images, (padding,) * 4).numpy()
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
    rows, columns = (chances[:, (ROW, COLUMN)] * (2 * padding + 1)).astype(np.int64).T
    return torch.from_numpy(windows[np.arange(len(images)), :, rows, columns])


def resize_boxes(images: Tensor, boxes: npt.NDArray[np.int64], size: tuple[int, int]) -> Tensor:
    """Stretch each image's box to `size`, with antialiasing, as Pillow does to within a level.

    One image after the other, since each has another scale: one whole-batch sampling of a grid
    would not antialias, and products with matrices of weights take three times as long.
    """
    resized = images.new_empty((*images.shape[:2], *size))
    for index, (top, left, tall, wide) in enumerate(boxes.tolist()):
        box = images[index : index + 1, :, top : top + tall, left : left + wide]
        resized[index] = F.interpolate(box, size, mode="bilinear", antialias=True)[0]
    return resized
