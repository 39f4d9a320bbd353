"""CIFAR-10 in its official binary layout, memory-mapped: a label byte, then 3,072 pixels."""

from pathlib import Path

import numpy as np

from stiffnet.data.images import ImageSet
from stiffnet.errors import DataError, UnknownNameError
from stiffnet.registry import unknown

CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
RECORD = 1 + 3 * 32 * 32
PARTS = {
    "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    "test": ("test_batch.bin",),
}


def cifar10(folder: str | Path, split: str = "test") -> ImageSet:
    """Open one split of CIFAR-10.

    Args:
        folder: The folder with the ``.bin`` files, or the one that holds `cifar-10-batches-bin`.
        split: ``"train"`` or ``"test"``.

    Raises:
        DataError: If a file is missing, cut short, or holds a label above 9.
        UnknownNameError: If `split` is something else.
    """
    if split not in PARTS:
        raise UnknownNameError(unknown("split of CIFAR-10", split, PARTS))
    root = Path(folder)
    if (root / "cifar-10-batches-bin").is_dir():
        root = root / "cifar-10-batches-bin"
    parts = [_records(root / name) for name in PARTS[split]]
    records = parts[0] if len(parts) == 1 else np.concatenate(parts)
    labels = records[:, 0].astype(np.int64)
    if labels.max() >= len(CLASSES):
        where = int(np.argmax(labels >= len(CLASSES)))
        raise DataError(
            f"Record {where} of the {split} split in {root} has label {labels[where]}, "
            f"but CIFAR-10 ends at 9. These are not CIFAR-10's binary files; fetch them again."
        )
    return ImageSet(f"cifar10-{split}", records[:, 1:].reshape(-1, 3, 32, 32), labels, CLASSES)


def _records(path: Path) -> np.ndarray:
    if not path.is_file():
        raise DataError(
            f"{path} is not there. `cifar10:DIR` takes the folder with the official binary "
            "files, data_batch_1.bin to data_batch_5.bin and test_batch.bin."
        )
    size = path.stat().st_size
    if size == 0 or size % RECORD:
        raise DataError(
            f"{path} has {size:,} bytes, which is no whole number of {RECORD}-byte records. "
            "The file is cut short or is something else; fetch it again."
        )
    try:
        return np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, RECORD)
    except OSError as error:
        raise DataError(
            f"{path} could not be read: {error.strerror or error}. Check its permissions."
        ) from error
