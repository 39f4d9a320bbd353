"""CIFAR-10, CIFAR-100 and STL-10 in their official binary layouts: files of equal records."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from stiffnet.data.images import ImageSet
from stiffnet.errors import DataError
from stiffnet.registry import check_known

PIXELS = 3 * 32 * 32  # of CIFAR
RECORD = 1 + PIXELS
RECORD_100 = 2 + PIXELS  # the superclass comes before the class
PARTS = {
    "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    "test": ("test_batch.bin",),
}
SIDE = 96  # of STL-10
CIFAR10 = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
STL10 = (
    "airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck",
)  # fmt: skip
CIFAR100 = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle",
    "bottle", "bowl", "boy", "bridge", "bus", "butterfly", "camel", "can", "castle",
    "caterpillar", "cattle", "chair", "chimpanzee", "clock", "cloud", "cockroach", "couch",
    "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish", "forest", "fox",
    "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion",
    "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom",
    "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree",
    "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road",
    "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake",
    "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone",
    "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale",
    "willow_tree", "wolf", "woman", "worm",
)  # fmt: skip


def cifar10(folder: str | Path, split: str = "test") -> ImageSet:
    """Open the ``train`` or the ``test`` split of CIFAR-10.

    `folder` is the one with the ``.bin`` files, or the one that holds `cifar-10-batches-bin`. A
    file that is missing, is cut short or holds a label above 9 is refused.
    """
    check_known("split of CIFAR-10", split, PARTS)
    root = _folder_of(folder, "cifar-10-batches-bin")
    hint = (
        "`cifar10:DIR` takes the folder with the official binary files, data_batch_1.bin to "
        "data_batch_5.bin and test_batch.bin."
    )
    parts = [_records(root / name, RECORD, hint) for name in PARTS[split]]
    rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return _cifar("CIFAR-10", f"cifar10-{split}", root, rows, CIFAR10)


def cifar100(folder: str | Path, split: str = "test") -> ImageSet:
    """Open the ``train`` or the ``test`` split of CIFAR-100, with its hundred fine classes.

    `folder` is the one with ``train.bin`` and ``test.bin``, or the one that holds
    `cifar-100-binary`; the classes' names are read from ``fine_label_names.txt`` if it is there. A
    file that is missing, is cut short or holds a label above 99 is refused.
    """
    check_known("split of CIFAR-100", split, PARTS)
    root = _folder_of(folder, "cifar-100-binary")
    hint = "`cifar100:DIR` takes the folder with the official binary files, train.bin and test.bin."
    rows = _records(root / f"{split}.bin", RECORD_100, hint)
    classes = _class_names(root / "fine_label_names.txt", CIFAR100)
    return _cifar("CIFAR-100", f"cifar100-{split}", root, rows, classes)


def stl10(folder: str | Path, split: str = "test") -> ImageSet:
    """Open a labelled split of STL-10: 5,000 images to train, all folds together, or 8,000 to test.

    `folder` is the one with ``train_X.bin``, ``train_y.bin`` and so on, or the one that holds
    `stl10_binary`; the classes' names are read from ``class_names.txt`` if it is there. A file that
    is missing, is cut short or holds a label beyond 1 to 10 is refused.
    """
    check_known("split of STL-10", split, PARTS)
    root = _folder_of(folder, "stl10_binary")
    hint = (
        "`stl10:DIR` takes the folder with the official binary files, train_X.bin, train_y.bin, "
        "test_X.bin and test_y.bin."
    )
    columns = _records(root / f"{split}_X.bin", 3 * SIDE * SIDE, hint).reshape(-1, 3, SIDE, SIDE)
    numbers = _records(root / f"{split}_y.bin", 1, hint)[:, 0].astype(np.int64)
    classes = _class_names(root / "class_names.txt", STL10)
    wrong = (numbers < 1) | (numbers > len(classes))
    if wrong.any():
        where = int(wrong.argmax())
        raise DataError(
            f"Label {where} in {root / f'{split}_y.bin'} is {numbers[where]}, but STL-10 counts "
            "from 1 to 10. This is not STL-10's file; fetch it again."
        )
    return ImageSet(f"stl10-{split}", columns.transpose(0, 1, 3, 2), numbers - 1, classes)


def _cifar(
    title: str, name: str, root: Path, rows: np.ndarray, classes: tuple[str, ...]
) -> ImageSet:
    labels = rows[:, -PIXELS - 1].astype(np.int64)
    if labels.max() >= len(classes):
        where = int(np.argmax(labels >= len(classes)))
        raise DataError(
            f"Record {where} of the {name.rpartition('-')[2]} split in {root} has label "
            f"{labels[where]}, but {title} ends at {len(classes) - 1}. These are not {title}'s "
            "binary files; fetch them again."
        )
    return ImageSet(name, rows[:, -PIXELS:].reshape(-1, 3, 32, 32), labels, classes)


def _records(path: Path, size: int, hint: str) -> npt.NDArray[np.uint8]:
    """Map a file of records of `size` bytes, as an array of shape (record, byte).

    Raises:
        DataError: If the file is missing (`hint` then says what the folder should hold), cannot be
            read, is empty or is cut short.
    """
    if not path.is_file():
        raise DataError(f"{path} is not there. {hint}")
    length = path.stat().st_size
    if length == 0 or length % size:
        raise DataError(
            f"{path} has {length:,} bytes, which is no whole number of {size}-byte records. "
            "The file is cut short or is something else; fetch it again."
        )
    try:
        return np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, size)
    except OSError as error:
        raise DataError(
            f"{path} could not be read: {error.strerror or error}. Check its permissions."
        ) from error


def _folder_of(folder: str | Path, usual: str) -> Path:
    """Return `folder`, or the folder of the `usual` name in it, as the archive unpacks to."""
    root = Path(folder)
    return root / usual if (root / usual).is_dir() else root


def _class_names(path: Path, otherwise: tuple[str, ...]) -> tuple[str, ...]:
    """Read the names of the classes, one a line; without such a file there are known ones.

    More or fewer names than there should be, and a name that comes twice, are refused.
    """
    if not path.is_file():
        return otherwise
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} could not be read: {error}. Fetch it again.") from error
    names = tuple(line.strip() for line in lines if line.strip())
    if len(set(names)) != len(otherwise) or len(names) != len(otherwise):
        raise DataError(
            f"{path} holds {len(set(names))} different names in {len(names)} lines, and there "
            f"are {len(otherwise)} classes. Fetch it again, or take it away: they are known."
        )
    return names
