"""CIFAR-10 and CIFAR-100 in their official binary layouts: label bytes, then 3,072 pixels."""

from pathlib import Path

import numpy as np

from stiffnet.data.binary import class_names, folder_of, records
from stiffnet.data.images import ImageSet
from stiffnet.errors import DataError
from stiffnet.registry import check_known

PIXELS = 3 * 32 * 32
RECORD = 1 + PIXELS
RECORD_100 = 2 + PIXELS  # the superclass comes before the class
PARTS = {
    "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    "test": ("test_batch.bin",),
}
CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
CLASSES_100 = (
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
    root = folder_of(folder, "cifar-10-batches-bin")
    hint = (
        "`cifar10:DIR` takes the folder with the official binary files, data_batch_1.bin to "
        "data_batch_5.bin and test_batch.bin."
    )
    parts = [records(root / name, RECORD, hint) for name in PARTS[split]]
    rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return _image_set("CIFAR-10", f"cifar10-{split}", root, rows, CLASSES)


def cifar100(folder: str | Path, split: str = "test") -> ImageSet:
    """Open the ``train`` or the ``test`` split of CIFAR-100, with its hundred fine classes.

    `folder` is the one with ``train.bin`` and ``test.bin``, or the one that holds
    `cifar-100-binary`; the classes' names are read from ``fine_label_names.txt`` if it is there. A
    file that is missing, is cut short or holds a label above 99 is refused.
    """
    check_known("split of CIFAR-100", split, PARTS)
    root = folder_of(folder, "cifar-100-binary")
    hint = "`cifar100:DIR` takes the folder with the official binary files, train.bin and test.bin."
    rows = records(root / f"{split}.bin", RECORD_100, hint)
    classes = class_names(root / "fine_label_names.txt", CLASSES_100)
    return _image_set("CIFAR-100", f"cifar100-{split}", root, rows, classes)


def _image_set(
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
