"""Which outputs of a network the labels of images stand for: what is said, known, and done."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor, tensor

from stiffnet.data import Data
from stiffnet.data.boxes import BoxedImages
from stiffnet.data.class_file import read_classes
from stiffnet.data.classes import ClassNames
from stiffnet.data.folder import ImageFolder
from stiffnet.network.classes import DATA, IMAGENET, Judging, imagenet, judging
from stiffnet.network.loaded import LoadedModel
from stiffnet.observe.measure import logit_width
from stiffnet.words import few


def said_of(classes: str) -> ClassNames | str | None:
    """Read what the user says of the network's outputs."""
    if classes == IMAGENET:
        return imagenet()
    return read_classes(classes) if classes not in ("", DATA) else classes or None


def said_number(said: ClassNames | str | None, images: Data) -> int:
    """Return how many outputs a network should have where nothing else says it."""
    return len(said if isinstance(said, ClassNames) else images.classes)


def judging_of(loaded: LoadedModel, images: Data, said: ClassNames | str | None) -> Judging:
    """Decide which outputs stand for the labels, from a pass of one image; boxes have none."""
    if isinstance(images, BoxedImages):
        return judging(loaded, images.classes, None, said=said)
    (first, _) = next(iter(images.batches(loaded.preparation, batch_size=1, limit=1)))
    return judging(
        loaded,
        images.classes,
        logit_width(loaded.model, first),
        said=said,
        folders=isinstance(images, ImageFolder),
    )


def remarks_on_images(images: Data) -> Iterator[str]:
    """Say what is unusual about some images."""
    yield from images.notes
    if isinstance(images, ImageFolder) and images.empty_classes:
        empty = images.empty_classes
        have = "has" if len(empty) == 1 else "have"
        yield f"{len(empty)} of {len(images.classes)} classes {have} no images: {few(empty)}."


def renumbered(batches: Iterable[Any], outputs: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Give each image of (images, labels) the number of its class's output for a label."""
    table = tensor(outputs)
    for images, labels in batches:
        yield images, table[labels]
