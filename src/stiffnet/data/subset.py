"""A part of a set of images in which every class has its share."""

from dataclasses import replace
from typing import TypeVar

import numpy as np

from stiffnet.data.boxes import BoxedImages
from stiffnet.data.folder import ImageFolder
from stiffnet.data.images import ImageSet, spread
from stiffnet.errors import DataError

Data = TypeVar("Data", ImageSet, ImageFolder, BoxedImages)


def subset(images: Data, count: int) -> Data:
    """Return `count` of the images, evenly chosen: see `spread`. The classes stay all of them.

    Raises:
        DataError: If there are fewer images, or not one for each class would be left.
    """
    if count > len(images):
        raise DataError(
            f"{images.name} has {len(images):,} images, and {count:,} were asked for. Ask for at "
            "most as many as there are."
        )
    if isinstance(images, BoxedImages):
        return images.chosen(spread(np.zeros(len(images), np.int64), count))
    if count < len(images.classes):
        raise DataError(
            f"{count:,} images were asked for of {images.name}, which has {len(images.classes):,} "
            "classes. Ask for at least one image per class."
        )
    chosen = spread(images.labels, count)
    labels = images.labels[chosen]
    if isinstance(images, ImageSet):
        return replace(images, images=images.images[chosen], labels=labels)
    return replace(images, files=tuple(images.files[index] for index in chosen), labels=labels)
