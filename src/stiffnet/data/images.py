"""Images in memory (or mapped from a file), and batches of them ready for a network."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from stiffnet.data.augment import Augmentation
from stiffnet.errors import DataError

Batch = TypeVar("Batch", covariant=True)

CROP_MODES = ("center", "squash", "border")
INTERPOLATIONS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")


@dataclass(frozen=True)
class Preparation:
    """What a network expects of its images: size, channels and normalisation.

    The others are for photographs of any size, which a folder holds: the share of the sides that
    the middle crop keeps, how pixels are resampled, and what becomes of other proportions. As timm
    has it, ``"center"`` cuts the longer side, ``"squash"`` changes the proportions, and
    ``"border"`` adds borders in the colour of the mean.
    """

    input_size: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop: float = 1.0
    interpolation: str = "bilinear"
    crop_mode: str = "center"

    def __post_init__(self) -> None:
        for field, known in (("crop_mode", CROP_MODES), ("interpolation", INTERPOLATIONS)):
            if (said := getattr(self, field)) not in known:
                raise ValueError(f"{field} is {said!r}, none of {', '.join(known)}")

    def __call__(self, images: Tensor) -> Tensor:
        """Turn uint8 images (batch, channel, height, width) into the network's input."""
        channels, height, width = self.input_size
        if images.dtype != torch.uint8:
            raise DataError(
                f"The images are {images.dtype}, and 8-bit ones (torch.uint8) are prepared. "
                "Give the raw pixels, from 0 to 255."
            )
        batch = images.float().div_(255)
        if batch.shape[1] == 1 and channels > 1:
            batch = batch.expand(-1, channels, -1, -1)
        if batch.shape[1] != channels:
            raise DataError(
                f"The images have {batch.shape[1]} channels, the network takes {channels}. "
                f"Build the network with `in_chans={batch.shape[1]}`."
            )
        if batch.shape[2:] != (height, width):
            batch = F.interpolate(batch, (height, width), mode="bilinear", antialias=True)
        mean, std = (
            torch.tensor(values, device=batch.device).view(1, -1, 1, 1)
            for values in (self.mean, self.std)
        )
        return (batch - mean) / std


@dataclass(frozen=True)
class ImageSet:
    """A data set small enough to index directly: uint8 images, one label each."""

    name: str
    images: npt.NDArray[np.uint8]  # (sample, channel, height, width)
    labels: npt.NDArray[np.int64]
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()  # what is unusual about them

    def __post_init__(self) -> None:
        if self.images.dtype != np.uint8 or self.images.ndim != 4:
            raise DataError(
                f"The images of {self.name} are {self.images.dtype} of shape "
                f"{self.images.shape}. Give uint8 of shape (sample, channel, height, width)."
            )
        if self.labels.ndim != 1 or len(self.images) != len(self.labels):
            raise DataError(
                f"{self.name} has {len(self.images):,} images and {len(self.labels):,} labels, of "
                f"shape {self.labels.shape}. Give one label for each image."
            )
        _check_labels(self.name, self.labels, len(self.classes))

    def __len__(self) -> int:
        return len(self.labels)

    def batches(
        self,
        preparation: Preparation,
        *,
        batch_size: int,
        limit: int | None = None,
        workers: int = 0,
    ) -> "Batches[tuple[Tensor, Tensor]]":
        """Return the samples in order, prepared for a network.

        With a `limit`, only that many, spread evenly over every class: see `spread`.
        """
        read = partial(_prepared, self, preparation)
        return Batches(in_batches(self.labels, batch_size, limit), read)

    def training_batches(
        self,
        preparation: Preparation,
        augmentation: Augmentation,
        indices: Sequence[npt.NDArray[np.int64]],
        *,
        seed: int,
        epoch: int,
        workers: int = 0,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the given samples, varied at random and prepared for a network, with their labels.

        What a sample looks like is a function of `seed`, `epoch` and its index alone. The
        arguments are those of `ImageFolder.training_batches`; images in memory need no `workers`.
        """
        for chosen in indices:
            images, labels = _taken(self, chosen)
            chances = augmentation.chances(seed, epoch, chosen)
            varied = augmentation(images, preparation.input_size[1:], chances)
            yield preparation(varied), labels

    def chosen(self, indices: npt.NDArray[np.int64]) -> "ImageSet":
        """Return some of the images, in the order of `indices`; the classes stay all of them."""
        return replace(self, images=self.images[indices], labels=self.labels[indices])


@dataclass(frozen=True, eq=False)
class Batches(Generic[Batch]):
    """Ordered batches of a data set: iterate it as often as you like."""

    indices: list[npt.NDArray[np.int64]]  # of the samples in each batch
    read: Callable[[list[npt.NDArray[np.int64]]], Iterator[Batch]]

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[Batch]:
        return self.read(self.indices)


def _prepared(
    source: ImageSet, preparation: Preparation, indices: list[npt.NDArray[np.int64]]
) -> Iterator[tuple[Tensor, Tensor]]:
    for chosen in indices:
        images, labels = _taken(source, chosen)
        yield preparation(images), labels


def _check_labels(name: str, labels: npt.NDArray[Any], classes: int) -> None:
    """Raise a DataError on the first label that is no class's number."""
    if labels.dtype.kind not in "iu":
        where = int(np.argmax(labels != np.rint(labels))) if labels.dtype.kind == "f" else 0
        raise DataError(
            f"The labels of {name} are {labels.dtype}, not integers: sample {where} has "
            f"{labels[where]}. Give the classes' numbers as int64."
        )
    outside = (labels < 0) | (labels >= classes)
    if outside.any():
        where = int(outside.argmax())
        raise DataError(
            f"Sample {where} of {name} has label {labels[where]}, but its {classes} classes are "
            f"numbered from 0 to {classes - 1}. Correct the label, or leave the sample out."
        )


def _taken(source: ImageSet, chosen: npt.NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    images = np.array(source.images[chosen], order="C")
    return torch.from_numpy(images), torch.from_numpy(source.labels[chosen].astype(np.int64))


def spread(labels: npt.NDArray[np.int64], limit: int) -> npt.NDArray[np.int64]:
    """Return the indices, in order, of `limit` samples in which every class has its share.

    The samples are sorted by class and taken at even distances, so sorted and shuffled sets alike
    give each class its share to within one sample.

    >>> spread(np.array([0, 0, 0, 0, 1, 1, 1, 1]), 4)
    array([1, 3, 5, 7])
    """
    count, limit = len(labels), min(limit, len(labels))
    order = np.argsort(labels, kind="stable")
    middles = (2 * np.arange(limit) + 1) * count // (2 * limit)  # of `limit` equal stretches
    return np.sort(order[middles])


def in_batches(
    labels: npt.NDArray[np.int64], batch_size: int, limit: int | None
) -> list[npt.NDArray[np.int64]]:
    """Return the indices of each batch; the last one may be smaller."""
    for name, value in (("batch_size", batch_size), ("limit", limit)):
        if value is not None and value < 1:
            raise DataError(f"`{name}` is {value}, which leaves no image. Give 1 or more.")
    chosen = spread(labels, len(labels) if limit is None else limit)
    return [chosen[start : start + batch_size] for start in range(0, len(chosen), batch_size)]
