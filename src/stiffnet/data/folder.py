"""Images in class folders, ``ROOT/CLASS/**/*.jpg``, decoded when they are needed."""

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from stiffnet.data.images import Preparation, in_batches
from stiffnet.errors import DataError

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".ppm", ".tif", ".tiff")
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "PPM", "TIFF")  # no decoder beyond these is tried
SPLITS = {"train", "training", "val", "valid", "validation", "test"}

Decoded = tuple[Tensor, int] | str  # an image and its label, or what is wrong with the file


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """Images on the disk, sorted by class and path; the same interface as an `ImageSet`."""

    name: str
    root: Path
    files: tuple[str, ...]  # relative to the root
    labels: npt.NDArray[np.int64]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.files)

    def batches(
        self,
        preparation: Preparation,
        *,
        batch_size: int,
        limit: int | None = None,
        workers: int = 0,
    ) -> "FolderBatches":
        """Return the samples in order, prepared for a network.

        An image keeps its proportions: its shorter side is scaled to the network's, and the middle
        is kept. With a `limit`, that many are spread over every class, as in an `ImageSet`.
        `workers` is the number of processes that decode; the result does not depend on it.
        """
        if workers < 0:
            raise DataError(f"`workers` is {workers}. Give 0 to decode in this process, or more.")
        indices = in_batches(self.labels, batch_size, limit)
        return FolderBatches(self, preparation, [chosen.tolist() for chosen in indices], workers)


@dataclass(frozen=True, eq=False)
class FolderBatches:
    """Ordered batches of an image folder: iterate it as often as you like."""

    source: ImageFolder
    preparation: Preparation
    indices: list[list[int]]  # of the samples in each batch
    workers: int

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        loader = DataLoader(
            _Decoder(self.source, self.preparation),
            batch_sampler=self.indices,
            num_workers=self.workers,
            collate_fn=_collate,
            generator=torch.Generator(),  # else it draws from the caller's random numbers
        )
        for batch in loader:
            if isinstance(batch, str):
                raise DataError(batch)
            images, labels = batch
            yield self.preparation(images), labels


def image_folder(root: str | os.PathLike[str]) -> ImageFolder:
    """Find the images in a folder of class folders; none is opened yet.

    Classes are the folders in `root`, by name, without those whose name starts with a dot; a class
    may have folders within, where links to folders are not followed. Files without an image's
    suffix are left out.

    Raises:
        DataError: If there is no such folder, a class is empty, or a link leaves the folder.
    """
    top = Path(root)
    if not top.is_dir():
        raise DataError(f"{top} is not a folder. Give the one that holds a folder for each class.")
    try:
        folders = sorted(
            entry.name
            for entry in os.scandir(top)
            if entry.is_dir() and not entry.name.startswith(".")
        )
        if not folders:
            raise DataError(
                f"{top} holds no folders. Make one for each class, and put its images there."
            )
        if set(folders) <= SPLITS:
            raise DataError(
                f"{top} holds splits ({', '.join(folders)}), not classes. "
                f"Give one of them, such as {top / folders[-1]}."
            )
        found = [_images_below(top, name) for name in folders]
    except OSError as error:
        raise DataError(
            f"{error.filename or top} could not be read: {error.strerror}. Check the permissions."
        ) from error
    if not any(found):
        raise DataError(
            f"{top} holds no images. Its class folders should hold {', '.join(SUFFIXES)} files."
        )
    for name, files in zip(folders, found, strict=True):
        if not files:
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
    )


def _images_below(root: Path, name: str) -> list[str]:
    """Return the images of one class, as sorted paths relative to `root`."""

    def stop(error: OSError) -> None:
        raise error

    inside = root.resolve()
    _refuse_escape(root / name, inside)
    found = []
    for folder, folders, files in os.walk(root / name, onerror=stop):
        folders[:] = [entry for entry in folders if not entry.startswith(".")]
        for entry in folders:
            _refuse_escape(Path(folder, entry), inside)
        for entry in files:
            path = Path(folder, entry)
            if entry.startswith(".") or path.suffix.lower() not in SUFFIXES:
                continue
            _refuse_escape(path, inside)
            found.append(path.relative_to(root).as_posix())
    return sorted(found)


def _refuse_escape(path: Path, inside: Path) -> None:
    if path.is_symlink() and not path.resolve().is_relative_to(inside):
        raise DataError(
            f"{path} is a link that leaves the folder. Copy what it points to into the folder."
        )


class _Decoder(Dataset[Decoded]):
    """Reads one file at a time; hands a fault on as text, which no worker process can garble."""

    def __init__(self, source: ImageFolder, preparation: Preparation) -> None:
        self.source = source
        self.preparation = preparation

    def __getitem__(self, index: int) -> Decoded:
        path = self.source.root / self.source.files[index]
        try:
            return _decode(path, self.preparation), int(self.source.labels[index])
        except Exception as error:  # Pillow's decoders raise nearly every type
            return (
                f"{path} is not an image that can be read: {_reason(path, error)}. "
                "Replace it or take it away."
            )


def _decode(path: Path, preparation: Preparation) -> Tensor:
    """Return the middle of an image as uint8 (channel, height, width)."""
    channels, height, width = preparation.input_size
    if path.exists() and not path.is_file():
        raise ValueError("it is a pipe or a device")  # which could keep us waiting for ever
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd metadata does not make an image unusable
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(path, formats=FORMATS) as opened:
            opened.load()
            image = _eight_bits(ImageOps.exif_transpose(opened))
            image = image.convert("L" if channels == 1 else "RGB")
    scale = max(width / image.width, height / image.height) / preparation.crop
    left = (image.width - width / scale) / 2
    upper = (image.height - height / scale) / 2
    # One step, since scaling a very long image first would need its whole length in memory.
    box = (max(left, 0), max(upper, 0), image.width - max(left, 0), image.height - max(upper, 0))
    pixels = np.array(image.resize((width, height), _resampling(preparation), box=box))
    return torch.from_numpy(pixels.reshape(height, width, -1)).permute(2, 0, 1).contiguous()


def _resampling(preparation: Preparation) -> Image.Resampling:
    names = Image.Resampling.__members__
    return names.get(preparation.interpolation.upper(), Image.Resampling.BILINEAR)


def _eight_bits(image: Image.Image) -> Image.Image:
    """Scale 16-bit grey values, which Pillow would cut off at 255."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError("it has 32 bits a pixel, and 8 or 16 are read")
    return image


def _reason(path: Path, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "it is gone"
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return "it would unpack to more pixels than is safe"
    if isinstance(error, UnidentifiedImageError):
        return "it is empty" if path.stat().st_size == 0 else "it has no known image format"
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def _collate(samples: list[Decoded]) -> tuple[Tensor, Tensor] | str:
    images, labels = [], []
    for sample in samples:
        if isinstance(sample, str):
            return sample
        images.append(sample[0])
        labels.append(sample[1])
    return torch.stack(images), torch.tensor(labels)
