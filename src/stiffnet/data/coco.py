"""Boxes in COCO's format: a JSON file for each split, and a folder of images beside it."""

import itertools
import json
import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct

from stiffnet.data.boxes import BoxedImages
from stiffnet.data.folder import ImageFolder
from stiffnet.errors import DataError
from stiffnet.registry import check_known
from stiffnet.schema import fitted, parsed
from stiffnet.words import few

LAYOUTS = {"train": ("train2017", "train"), "test": ("val2017", "val")}  # COCO's own, and shorter
SHOWN = 3  # boxes in a sentence
THINNEST = 0.01  # pixels; a thinner box could lose its width when it is mirrored or scaled
FARTHEST = 1e7  # pixels; a box that is larger or lies farther out is a mistake

Side = Annotated[int, Meta(ge=1, le=1_000_000)]


class _Image(Struct):
    id: int
    file_name: str
    width: Side
    height: Side


class _Box(Struct):
    image_id: int
    category_id: int
    bbox: list[float]  # left, top, width, height
    id: int | None = None
    area: float | None = None
    iscrowd: int | bool = 0


class _Category(Struct):
    id: int
    name: str


class _Coco(Struct):
    images: list[_Image]
    annotations: list[_Box]
    categories: list[_Category]


def coco(folder: str | os.PathLike[str], split: str = "test") -> BoxedImages:
    """Open one split of a data set in COCO's layout.

    That is ``annotations/instances_train2017.json``, ``train2017/`` and the same of ``val2017``,
    or these names without the year. Classes are the categories, in the order of their ids, which
    may have gaps. A box of which nothing lies within its image is left out, and a note says which.
    ``train`` has boxes that are cut at the borders of their images, none around crowds, and no
    images without boxes, as detectors are usually trained. ``test`` has the boxes of the file, with
    the images in the order of their ids, as COCO's own evaluation has them.

    Args:
        folder: The one that holds ``annotations``.
        split: ``"train"``, or ``"test"`` for the validation images, whose boxes are public.

    Raises:
        DataError: If the files are not there or not COCO's, or a box makes no sense; it says which.
    """
    file, images = _places(Path(folder), split)
    content = _read(file)
    content.categories.sort(key=lambda each: each.id)
    _refuse_twice(file, "category id", (each.id for each in content.categories))
    _refuse_twice(file, "category name", (each.name for each in content.categories))
    _refuse_twice(file, "image id", (each.id for each in content.images))
    _refuse_twice(file, "image file", (os.path.normpath(each.file_name) for each in content.images))
    _refuse_twice(file, "box id", (each.id for each in content.annotations if each.id is not None))
    _refuse_escapes(file, images, [each.file_name for each in content.images])
    if split == "train":
        return _boxed(file, images, content, cut=True).to_learn()
    content.images.sort(key=lambda each: each.id)
    boxed = _boxed(file, images, content, cut=False)
    if bool(boxed.crowd.all()):
        raise DataError(f"{file} has no box to be found, so nothing can be tested. Add boxes.")
    return boxed


def _places(folder: Path, split: str) -> tuple[Path, Path]:
    """Return the JSON file of a split, and the folder of its images."""
    check_known("split of COCO data", split, LAYOUTS)
    files = [folder / "annotations" / f"instances_{name}.json" for name in LAYOUTS[split]]
    for file, name in zip(files, LAYOUTS[split], strict=True):
        if file.is_file():
            if not (folder / name).is_dir():
                raise DataError(
                    f"{file} is there, and the folder {folder / name} with its images is not. Put "
                    "them there."
                )
            return file, folder / name
    raise DataError(
        f"There is neither {files[0]} nor {files[1].name} beside it. Give the folder that holds "
        "`annotations`, as in `coco:DIR`."
    )


def _read(file: Path) -> _Coco:
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise DataError(
            f"{file} could not be read: {error.strerror}. Check the permissions."
        ) from error
    try:
        if b"NaN" in raw or b"Infinity" in raw:  # not JSON, but what Python writes
            return fitted(json.loads(raw), _Coco)
        content: _Coco = parsed(raw, _Coco)
        return content
    except ValueError as error:
        why = "it is not JSON" if isinstance(error, json.JSONDecodeError) else error
        raise DataError(
            f"{file} is not a file of boxes in COCO's format: {why}. It needs `images`, "
            "`annotations` and `categories`, as COCO's `instances_*.json` have them."
        ) from error


def _boxed(file: Path, folder: Path, content: _Coco, *, cut: bool) -> BoxedImages:
    """Check the boxes and put them into arrays; `cut` them at the borders of their images."""
    place = {each.id: index for index, each in enumerate(content.images)}
    label = {each.id: index for index, each in enumerate(content.categories)}
    for box in content.annotations:
        _check_box(file, box, place, label)
    sizes = np.array([(each.height, each.width) for each in content.images], np.int64)
    owner = np.array([place[box.image_id] for box in content.annotations], np.int64)
    order = np.argsort(owner, kind="stable")
    given = np.array([box.bbox for box in content.annotations], np.float64).reshape(-1, 4)
    high = sizes.reshape(-1, 2)[owner][:, [1, 0]].astype(np.float64)
    low, far = given[:, :2], given[:, :2] + given[:, 2:]
    shown = np.hstack([np.clip(low, 0, high), np.clip(far, 0, high)])
    inside = np.all(shown[:, 2:] - shown[:, :2] >= THINNEST, axis=1)
    corners = shown if cut else np.hstack([low, far])
    areas = np.array([box.area or box.bbox[2] * box.bbox[3] for box in content.annotations])
    crowd = np.array([bool(box.iscrowd) for box in content.annotations], np.bool_)
    labels = np.array([label[box.category_id] for box in content.annotations], np.int64)
    kept = order[inside[order]]
    count = len(content.images)
    return BoxedImages(
        name=f"{folder.resolve().parent.name}/{folder.name}",
        pictures=ImageFolder(
            name=folder.name,
            root=folder,
            files=tuple(each.file_name for each in content.images),
            labels=np.zeros(count, np.int64),
            classes=("image",),
        ),
        sizes=sizes.reshape(-1, 2),
        starts=np.searchsorted(owner[kept], np.arange(count + 1)).astype(np.int64),
        boxes=corners[kept],
        labels=labels[kept],
        areas=areas[kept].astype(np.float64),
        crowd=crowd[kept],
        classes=tuple(each.name for each in content.categories),
        notes=_left_out(file, list(itertools.compress(content.annotations, ~inside))),
    )


def _check_box(file: Path, box: _Box, images: Collection[int], categories: Collection[int]) -> None:
    """Refuse a box that makes no sense."""
    if box.image_id not in images:
        raise DataError(
            f"{_named(box)} of {file} is in the image with id {box.image_id}, and there is none. "
            "Correct `image_id`, or leave the box out."
        )
    if box.category_id not in categories:
        raise DataError(
            f"{_named(box)} of {file} is of the category with id {box.category_id}, and there is "
            "none. Correct `category_id`, or add the category."
        )
    numbers = (*box.bbox, 0.0 if box.area is None else box.area)
    if (
        len(box.bbox) != 4
        or not all(map(math.isfinite, numbers))
        or min(numbers[2:]) < 0
        or max(map(abs, box.bbox)) > FARTHEST
    ):
        raise DataError(
            f"{_named(box)} of {file} is {str(box.bbox)[:80]}, of area {box.area}. Give left, top, "
            "width and height in pixels, none of the last two negative, and no negative area."
        )


def _named(box: _Box) -> str:
    return f"{'A box' if box.id is None else f'Box {box.id}'} of image {box.image_id}"


def _left_out(file: Path, boxes: Sequence[_Box]) -> tuple[str, ...]:
    """Say which boxes have no area within their image."""
    if not boxes:
        return ()
    which = few((name[0].lower() + name[1:] for name in map(_named, boxes)), SHOWN)
    have, are = ("has", "is") if len(boxes) == 1 else ("have", "are")
    return (f"In {file}, {which} {have} no area within the image, and {are} left out.",)


def _refuse_twice(file: Path, what: str, values: Iterable[int | str]) -> None:
    for value, times in Counter(values).items():
        if times > 1:
            raise DataError(f"{file} has the {what} {value!r} {times} times. Keep one of them.")


def _refuse_escapes(file: Path, folder: Path, names: Iterable[str]) -> None:
    """Refuse names of files that lie elsewhere than in the folder, through links too."""
    top = folder.resolve()
    for name in names:
        parts = PurePosixPath(name)
        path = folder / name
        outside = parts.is_absolute() or ".." in parts.parts or "\0" in name or not parts.parts
        linked = not outside and (path.is_symlink() or len(parts.parts) > 1)
        if outside or (linked and not path.resolve().is_relative_to(top)):
            raise DataError(
                f"{file} names the image {name[:80]!r}, which is not a file in {folder}. Put it "
                "there, and name it by its place in that folder."
            )
