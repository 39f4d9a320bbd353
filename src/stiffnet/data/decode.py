"""One image file as 8-bit pixels, or one sentence that says why it has none."""

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from stiffnet.data.augment import Augmentation
from stiffnet.data.images import Preparation
from stiffnet.errors import DataError
from stiffnet.words import first_line

PHOTOMETRIC, WHITE_IS_ZERO = 262, 0  # a tag of TIFF files, and one of its values
SAMPLE_FORMAT, UNSIGNED = 339, 1
BITS = 258
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "PPM", "TIFF")  # no decoder beyond these is tried


@dataclass(frozen=True)
class Middle:
    """Shows the middle of an image, in the proportions of the network."""

    preparation: Preparation

    def __call__(self, image: Image.Image, sample: int) -> Tensor:
        """Return uint8 (channel, height, width)."""
        given = self.preparation
        _, height, width = given.input_size
        across, down = width / image.width, height / image.height
        if given.crop_mode != "squash":
            across = down = (min if given.crop_mode == "border" else max)(across, down)
        across, down = across / given.crop, down / given.crop
        left = max((image.width - width / across) / 2, 0)
        upper = max((image.height - height / down) / 2, 0)
        # One step, since scaling a very long image first would need its whole length in memory.
        box = (left, upper, image.width - left, image.height - upper)
        wide = max(min(width, round(image.width * across)), 1)
        tall = max(min(height, round(image.height * down)), 1)
        shown = image.resize((wide, tall), _resampling(given), box=box)
        if (wide, tall) != (width, height):
            colour = tuple(round(255 * value) for value in given.mean)
            whole = Image.new(image.mode, (width, height), colour if len(colour) > 1 else colour[0])
            whole.paste(shown, ((width - wide) // 2, (height - tall) // 2))
            shown = whole
        return _pixels(shown)


@dataclass(frozen=True)
class Varied:
    """Shows an image as an augmentation has it in one epoch of one run."""

    preparation: Preparation
    augmentation: Augmentation
    seed: int
    epoch: int

    def __call__(self, image: Image.Image, sample: int) -> Tensor:
        """Return uint8 (channel, height, width)."""
        size = self.preparation.input_size[1:]
        chances = self.augmentation.chances(self.seed, self.epoch, np.array([sample]))
        if self.augmentation.crop != "resized":
            pixels = Middle(self.preparation)(image, sample)
            return self.augmentation(pixels[None], size, chances)[0]
        [[top, left, tall, wide]] = self.augmentation.boxes(chances, image.height, image.width)
        box = image.crop((int(left), int(top), int(left + wide), int(top + tall)))
        pixels = _pixels(box.resize(size[::-1], _resampling(self.preparation)))
        return self.augmentation.mirror(pixels[None], chances)[0]


View = Middle | Varied


def read_image(path: Path, channels: int) -> Image.Image:
    """Decode a file, turned as its camera says, in grey (for one channel) or colour."""
    if path.exists() and not path.is_file():
        kind = "folder" if path.is_dir() else "pipe or a device"  # which could keep us waiting
        raise ValueError(f"it is a {kind}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd metadata does not make an image unusable
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(path, formats=FORMATS) as opened:
            opened.load()
            image = _eight_bits(ImageOps.exif_transpose(opened), opened)
            return image.convert("L" if channels == 1 else "RGB")


@contextlib.contextmanager
def decoding(path: Path) -> Iterator[None]:
    """Raise a DataError that says why a file is not an image, whatever is raised inside."""
    try:
        yield
    except Exception as error:  # Pillow's decoders raise nearly every type
        raise DataError(
            f"{path} is not an image that can be read: {_reason(path, error)}. "
            "Replace it or take it away."
        ) from error


def _reason(path: Path, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "it is gone"
    if isinstance(error, PermissionError):
        return "you may not read it"
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return "it would unpack to more pixels than is safe"
    if isinstance(error, UnidentifiedImageError):
        return "it is empty" if path.stat().st_size == 0 else "it has no known image format"
    return first_line(error)


def _pixels(image: Image.Image) -> Tensor:
    pixels = np.array(image).reshape(image.height, image.width, -1)
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def _resampling(preparation: Preparation) -> Image.Resampling:
    return Image.Resampling[preparation.interpolation.upper()]


def _eight_bits(image: Image.Image, opened: Image.Image) -> Image.Image:
    """Scale grey values of more than 8 bits, which Pillow would cut off at 255.

    It leaves those of a TIFF file as the file has them: of 12 or 16 bits, and with white as 0 where
    the photometric interpretation says so. Those of a PGM file it brings to 16 bits.
    """
    tags = getattr(opened, "tag_v2", {})
    wide = image.mode.startswith("I;16") or (image.mode == "I" and opened.format == "PPM")
    signed = any(kind != UNSIGNED for kind in tags.get(SAMPLE_FORMAT, ()))
    if signed or (image.mode in ("I", "F") and not wide):
        raise ValueError("it has 32 bits a pixel or signed values, and 8 or 16 bits are read")
    if not wide:
        return image
    [bits] = tags.get(BITS, (16,))
    levels = (np.asarray(image) >> (bits - 8)).astype(np.uint8)
    return Image.fromarray(255 - levels if tags.get(PHOTOMETRIC) == WHITE_IS_ZERO else levels)
