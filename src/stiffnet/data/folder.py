"""Images in class folders, ``ROOT/CLASS/**/*.jpg``, decoded when they are needed."""

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.utils.data import default_collate

from stiffnet.data.augment import Augmentation
from stiffnet.data.classes import composed
from stiffnet.data.decode import Middle, Varied, View, decoding, read_image
from stiffnet.data.images import Batches, Preparation, in_batches
from stiffnet.data.workers import check_workers, faults_in, without_faults
from stiffnet.errors import DataError
from stiffnet.words import few

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".ppm", ".pgm", ".tif", ".tiff")
NOT_READ = (  # images all the same
    ".gif", ".jfif", ".jpe", ".jp2", ".jxl", ".avif", ".heic", ".heif", ".tga", ".ico", ".svg",
)  # fmt: skip
CHECKED_AT_ONCE = 32  # files that a process decodes before it reports
TRAINING = ("train", "training")
TESTING = ("val", "valid", "validation", "test")


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """Images on the disk, sorted by class and path; the same interface as an `ImageSet`."""

    name: str
    root: Path
    files: tuple[str, ...]  # relative to the root
    labels: npt.NDArray[np.int64]
    classes: tuple[str, ...]
    unread: tuple[str, ...] = ()  # files of image formats that are left out

    def __len__(self) -> int:
        return len(self.files)

    @property
    def empty_classes(self) -> tuple[str, ...]:
        """Classes without an image."""
        filled = set(self.labels.tolist())
        return tuple(name for label, name in enumerate(self.classes) if label not in filled)

    @property
    def notes(self) -> tuple[str, ...]:
        """Say which images are left out."""
        if not self.unread:
            return ()
        left = "1 image is" if len(self.unread) == 1 else f"{len(self.unread):,} images are"
        return (
            f"{left} left out of {self.root}, in formats that are not read: {few(self.unread)}. "
            "Convert them to PNG or JPEG to use them.",
        )

    def batches(
        self,
        preparation: Preparation,
        *,
        batch_size: int,
        limit: int | None = None,
        workers: int = 0,
    ) -> Batches[tuple[Tensor, Tensor]]:
        """Return the samples in order, prepared for a network.

        An image keeps its proportions: its shorter side is scaled to the network's, and the middle
        is kept. With a `limit`, that many are spread over every class, as in an `ImageSet`.
        `workers` is the number of processes that decode; the result does not depend on it.
        """
        check_workers(workers)
        read = partial(_prepared, self, Middle(preparation), workers)
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

        What a sample looks like is a function of `seed`, `epoch` and its index alone, whatever the
        number of processes. Unless the crop is a resized one, it is taken of the image as
        `batches` shows it.

        Args:
            preparation: What the network expects of its images.
            augmentation: How they are varied.
            indices: The samples of each batch, such as `order.epoch_batches` or some of its end.
            seed: Of the run.
            epoch: Number of the epoch.
            workers: Number of processes that decode; 0 decodes in this one.

        Raises:
            DataError: If `workers` is negative; later, if a file is no image, or a process dies.
        """
        check_workers(workers)
        return _prepared(self, Varied(preparation, augmentation, seed, epoch), workers, indices)

    def without_bad_images(
        self, preparation: Preparation | None = None, *, workers: int = 0
    ) -> tuple["ImageFolder", list[str]]:
        """Decode every file once, and return the folder without those that cannot be read.

        Args:
            preparation: What the network expects of its images; by default, colour.
            workers: Number of processes that decode; 0 decodes in this one.

        Returns:
            The folder without them, and a sentence on each that was left out.

        Raises:
            DataError: If no image of a class is left.
        """
        check_workers(workers)
        view = Middle(preparation or Preparation((3, 32, 32), (0.0,) * 3, (1.0,) * 3))
        indices = in_batches(self.labels, CHECKED_AT_ONCE, None)
        faults = faults_in(partial(_decoded, self, view), indices, workers)
        kept = np.array([not fault for fault in faults])
        for label, name in enumerate(self.classes):
            of_class = np.flatnonzero(self.labels == label)
            if len(of_class) and not kept[of_class].any():
                raise DataError(
                    f"No image of the class {name!r} can be read, for example: "
                    f"{faults[of_class[0]]}"
                )
        return self.chosen(np.flatnonzero(kept)), [fault for fault in faults if fault]

    def chosen(self, indices: npt.NDArray[np.int64]) -> "ImageFolder":
        """Return some of the images, in the order of `indices`; the classes stay all of them."""
        files = tuple(self.files[index] for index in indices)
        return replace(self, files=files, labels=self.labels[indices])


def _prepared(
    source: ImageFolder, view: View, workers: int, indices: Sequence[npt.NDArray[np.int64]]
) -> Iterator[tuple[Tensor, Tensor]]:
    read = partial(_decoded, source, view)
    for images, labels in without_faults(read, indices, default_collate, workers):
        yield view.preparation(images), labels


def _decoded(source: ImageFolder, view: View, index: int) -> tuple[Tensor, int]:
    path = source.root / source.files[index]
    with decoding(path):
        image = read_image(path, view.preparation.input_size[0])
        return view(image, index), int(source.labels[index])


def image_folder(root: str | os.PathLike[str], *, allow_empty: bool = True) -> ImageFolder:
    """Find the images in a folder of class folders; none is opened yet.

    Classes are the folders in `root`, without those whose name starts with a dot. They are numbered
    as their names sort as text ("10" before "2"), as torchvision's ``ImageFolder`` does; which
    output of a network that is, their names must decide. A class may be a link to a folder, and may
    have folders within, where links to folders are not followed. Files without an image's suffix
    are left out, and images whose format is not read are listed (`unread`).

    Args:
        root: The folder.
        allow_empty: Take an empty folder for a class without images; see `empty_classes`.

    Raises:
        DataError: If there is no such folder, or it has no images; if a class has none and may not
            be empty; if two names look the same; if a link within a class leaves the folder.
    """
    top = Path(root)
    if not top.is_dir():
        raise DataError(f"{top} is not a folder. Give the one that holds a folder for each class.")
    with reading(top):
        with os.scandir(top) as entries:
            shown = [entry for entry in entries if not entry.name.startswith(".")]
        if lost := sorted(e.path for e in shown if e.is_symlink() and not os.path.exists(e.path)):
            raise DataError(
                f"{lost[0]} is a link to nothing, so that it is not known whether it is a class. "
                "Take it away, or point it to a folder of images."
            )
        folders = sorted(entry.name for entry in shown if entry.is_dir())
        if not folders:
            raise DataError(
                f"{top} holds no folders. Make one for each class, and put its images there."
            )
        if splits := _splits(folders):
            raise DataError(
                f"{top} holds splits ({', '.join(splits)}), not classes. "
                f"Give one of them, such as {top / splits[-1]}."
            )
        _refuse_twins(top, folders)
        below = [_images_below(top, name) for name in folders]
    unread = tuple(file for _, others in below for file in others)
    found = [images for images, _ in below]
    if not any(found):
        raise DataError(
            f"{top} holds no images. Its class folders should hold {', '.join(SUFFIXES)} files."
        )
    for name, files in zip(folders, found, strict=True):
        if not files and not allow_empty:
            raise DataError(
                f"The class folder {top / name} holds no images. Fill it or take it away."
            )
    labels = np.repeat(np.arange(len(folders)), [len(files) for files in found])
    return ImageFolder(
        name=top.resolve().name,
        root=top,
        files=tuple(file for files in found for file in files),
        labels=labels.astype(np.int64),
        classes=tuple(folders),
        unread=unread,
    )


def _refuse_twins(top: Path, folders: Sequence[str]) -> None:
    """Refuse two classes whose names look the same, as after copying between systems."""
    for form, count in Counter(map(composed, folders)).items():
        if count > 1:
            raise DataError(
                f"{top} holds the class {form!r} twice, written in two Unicode forms (NFC and NFD) "
                "that look the same. Put their images into one folder."
            )


def _splits(folders: Sequence[str]) -> list[str]:
    """Which folders are splits: if there is nothing else, or both of training and of testing.

    A single one among others may be a class: a train is a vehicle too.
    """
    found = [name for name in folders if name.lower() in TRAINING + TESTING]
    kinds = {name.lower() in TRAINING for name in found}
    return found if len(kinds) == 2 or len(found) == len(folders) else []


def _images_below(root: Path, name: str) -> tuple[list[str], list[str]]:
    """Return the images of one class, as `images_within` does."""
    if root.resolve().is_relative_to(_target(root / name)):
        raise DataError(
            f"{root / name} is a link to a folder that it is in itself. Take it away, or point it "
            "to a folder of images."
        )
    return images_within(root, root / name)


def images_within(root: Path, folder: Path) -> tuple[list[str], list[str]]:
    """Return the images in a folder and the folders within, as sorted paths relative to `root`.

    Beside them, those whose format is not read.

    Raises:
        DataError: If a link leaves both.
        OSError: If a folder cannot be read.
    """

    def stop(error: OSError) -> None:
        raise error

    inside = (root.resolve(), _target(folder))
    found: tuple[list[str], list[str]] = ([], [])
    for place, folders, files in os.walk(folder, onerror=stop):
        folders[:] = [entry for entry in folders if not entry.startswith(".")]
        for entry in folders:
            _refuse_escape(Path(place, entry), inside)
        for entry in files:
            path = Path(place, entry)
            suffix = path.suffix.lower()
            is_read = suffix in SUFFIXES
            if entry.startswith(".") or not (is_read or suffix in NOT_READ):
                continue
            if is_read:
                _refuse_escape(path, inside)
            found[0 if is_read else 1].append(path.relative_to(root).as_posix())
    return sorted(found[0]), sorted(found[1])


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Raise a DataError where something in a folder cannot be read."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{error.filename or folder} could not be read: {error.strerror}. Take it away, or "
            "check the permissions."
        ) from error


def _target(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # which of them depends on Python's version
        raise DataError(
            f"{path} is a link that leads back to itself. Take it away, or point it to an image."
        ) from error


def _refuse_escape(path: Path, inside: tuple[Path, ...]) -> None:
    if not path.is_symlink():
        return
    target = _target(path)
    if not any(target.is_relative_to(each) for each in inside):
        raise DataError(
            f"{path} is a link that leaves the folder. Copy what it points to into the folder."
        )
