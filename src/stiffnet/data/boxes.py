"""Images with boxes around the things in them, whole and of any size: what detectors learn from."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stiffnet.data.augment import FLIP, Augmentation
from stiffnet.data.decode import decoding, read_image
from stiffnet.data.folder import ImageFolder
from stiffnet.data.images import Batches, ImageSet, Preparation, in_batches
from stiffnet.data.workers import check_workers, faults_in, without_faults
from stiffnet.errors import DataError

Integers = npt.NDArray[np.int64]
Batch = dict[str, list[Any]]  # "images" and "targets", the arguments of torchvision's detectors
Decoded = tuple[Tensor, dict[str, Tensor]]


@dataclass(frozen=True, eq=False)
class BoxedImages:
    """Images, and the boxes in each: the same interface as an `ImageSet`, but for its batches.

    A batch is a dictionary of two lists, ``images`` and ``targets``. An image is float32 from 0 to
    1 and as large as it is: detectors scale and normalise images themselves. A target has
    ``boxes`` (left, top, right, bottom), ``labels`` that count classes from 1, as 0 is the
    background, ``area``, ``iscrowd`` and ``image_id``, which is the number of the image here.
    """

    name: str
    pictures: ImageSet | ImageFolder  # whose labels and classes mean nothing
    sizes: Integers  # height and width of each picture
    starts: Integers  # of each picture: its first row in the arrays below; and their length
    boxes: npt.NDArray[np.float64]
    labels: Integers  # of each box, from 0
    areas: npt.NDArray[np.float64]  # by which a thing is small, medium or large
    crowd: npt.NDArray[np.bool_]  # the box is around many things, and finding them counts nothing
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()  # on what was left out

    def __len__(self) -> int:
        return len(self.pictures)

    def batches(
        self,
        preparation: Preparation,
        *,
        batch_size: int,
        limit: int | None = None,
        workers: int = 0,
    ) -> Batches[Batch]:
        """Return the images, those of one size together; with a `limit`, so many, evenly chosen.

        As a batch holds images of one size only, none is padded to the size of another, and what a
        detector makes of an image does not depend on the batch that it comes in.
        """
        check_workers(workers)
        _check_detector(preparation, self.name)
        indices = in_batches(np.zeros(len(self), np.int64), max(len(self), 1), limit)
        [chosen] = indices or [np.empty(0, np.int64)]
        _, group = np.unique(self.sizes[chosen], axis=0, return_inverse=True)
        parts = [chosen[group.ravel() == each] for each in range(int(group.max(initial=-1)) + 1)]
        cut = [part[at] for part in parts for at in in_batches(part * 0, batch_size, None)]
        return Batches(cut, partial(_read, self, np.zeros(len(self), np.bool_), workers))

    def training_batches(
        self,
        preparation: Preparation,
        augmentation: Augmentation,
        indices: Sequence[Integers],
        *,
        seed: int,
        epoch: int,
        workers: int = 0,
    ) -> Iterator[Batch]:
        """Yield the given images, mirrored at random, with their boxes.

        Whether an image is mirrored is a function of `seed`, `epoch` and its index alone. The
        arguments are those of `ImageFolder.training_batches`; there is no crop.
        """
        check_workers(workers)
        _check_detector(preparation, self.name)
        if augmentation.crop != "none":
            raise DataError(
                f"`crop` is {augmentation.crop!r}, and crops would cut the boxes of {self.name} "
                "off. Set it to 'none'."
            )
        turned = np.zeros(len(self), np.bool_)
        if augmentation.flip:
            chances = augmentation.chances(seed, epoch, np.arange(len(self)))
            turned = chances[:, FLIP] < 0.5
        return _read(self, turned, workers, indices)

    def chosen(self, indices: Integers) -> "BoxedImages":
        """Return some of the images, in the order of `indices`."""
        rows = [np.arange(self.starts[i], self.starts[i + 1]) for i in indices]
        found = self._with_boxes(np.concatenate([np.empty(0, np.int64), *rows]), map(len, rows))
        return replace(found, pictures=self.pictures.chosen(indices), sizes=self.sizes[indices])

    def to_learn(self) -> "BoxedImages":
        """Return it for training: without boxes around crowds, and images without any other.

        Raises:
            DataError: If nothing is left.
        """
        owner = np.repeat(np.arange(len(self)), np.diff(self.starts))
        counts = np.bincount(owner[~self.crowd], minlength=len(self))
        left = self._with_boxes(~self.crowd, counts).chosen(np.flatnonzero(counts))
        if not len(left):
            raise DataError(f"{self.name} has no image with a box to learn from. Give some boxes.")
        notes = self.notes
        if len(left) < len(self):
            gone = len(self) - len(left)
            have = "has" if gone == 1 else "have"
            notes += (f"{gone:,} of {len(self):,} images of {self.name} {have} no box, and nothing "
                      "is learnt from them.",)  # fmt: skip
        return replace(left, notes=notes)

    def _with_boxes(self, kept: npt.NDArray[Any], counts: Iterable[int]) -> "BoxedImages":
        """Return it with some of the boxes, of which each image in turn has so many."""
        arrays = {name: getattr(self, name)[kept] for name in ("boxes", "labels", "areas", "crowd")}
        return replace(self, starts=np.cumsum([0, *counts], dtype=np.int64), **arrays)

    def without_bad_images(
        self, preparation: Preparation | None = None, *, workers: int = 0
    ) -> tuple["BoxedImages", list[str]]:
        """Decode every file once, and return the images that can be read, and what is wrong else.

        Raises:
            DataError: If none can be read.
        """
        check_workers(workers)
        read = partial(_decoded, self, np.zeros(len(self), np.bool_))
        faults = faults_in(read, [[index] for index in range(len(self))], workers)
        kept = np.flatnonzero([not fault for fault in faults])
        if not len(kept):
            raise DataError(f"No image of {self.name} can be read, for example: {faults[0]}")
        return self.chosen(kept), [fault for fault in faults if fault]


def _decoded(source: BoxedImages, turned: npt.NDArray[np.bool_], index: int) -> Decoded:
    """Read one image, mirrored or not."""
    pixels = _pixels(source, index)
    rows = slice(source.starts[index], source.starts[index + 1])
    boxes = source.boxes[rows]
    if turned[index]:
        width = source.sizes[index, 1]
        pixels = pixels[..., ::-1]
        boxes = np.stack([width - boxes[:, 2], boxes[:, 1], width - boxes[:, 0], boxes[:, 3]], 1)
    image = torch.from_numpy(np.ascontiguousarray(pixels)).float().div_(255)
    target = {
        "boxes": torch.from_numpy(boxes.astype(np.float32)),
        "labels": torch.from_numpy(source.labels[rows] + 1),
        "area": torch.from_numpy(source.areas[rows].astype(np.float32)),
        "iscrowd": torch.from_numpy(source.crowd[rows].astype(np.int64)),
        "image_id": torch.tensor(index),
    }
    return image, target


def _pixels(source: BoxedImages, index: int) -> npt.NDArray[np.uint8]:
    """Return an image as uint8 (channel, height, width)."""
    pictures, (height, width) = source.pictures, source.sizes[index]
    if isinstance(pictures, ImageSet):
        return np.asarray(pictures.images[index])
    path = pictures.root / pictures.files[index]
    with decoding(path):
        image = read_image(path, 3)
    if (image.height, image.width) != (height, width):
        raise DataError(
            f"{path} is {image.width} × {image.height} pixels, and its boxes are for one of "
            f"{width} × {height}. Correct `width` and `height`, or give the image that was meant."
        )
    return np.asarray(image).transpose(2, 0, 1)


def _read(
    source: BoxedImages, turned: npt.NDArray[np.bool_], workers: int, indices: Sequence[Integers]
) -> Iterator[Batch]:
    return without_faults(partial(_decoded, source, turned), indices, _collate, workers)


def _collate(samples: list[Decoded]) -> Batch:
    images, targets = zip(*samples, strict=True)
    return {"images": list(images), "targets": list(targets)}


def _check_detector(preparation: Preparation, name: str) -> None:
    """Refuse a network that does not take images whole and as they are, as detectors do."""
    if any(preparation.mean) or any(value != 1 for value in preparation.std):
        raise DataError(
            f"{name} holds whole images with boxes, which are for detectors, and this network is "
            "none. Give a detector, such as `fasterrcnn:resnet50`, or other data."
        )
