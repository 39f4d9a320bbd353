"""STL-10 in its official binary layout: planes of 96×96 pixels, column after column."""

from pathlib import Path

import numpy as np

from stiffnet.data.binary import class_names, folder_of, records
from stiffnet.data.images import ImageSet
from stiffnet.errors import DataError
from stiffnet.registry import check_known

SIDE = 96
SPLITS = ("train", "test")
CLASSES = (
    "airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck",
)  # fmt: skip


def stl10(folder: str | Path, split: str = "test") -> ImageSet:
    """Open a labelled split of STL-10: 5,000 images to train, all folds together, or 8,000 to test.

    `folder` is the one with ``train_X.bin``, ``train_y.bin`` and so on, or the one that holds
    `stl10_binary`; the classes' names are read from ``class_names.txt`` if it is there. A file that
    is missing, is cut short or holds a label beyond 1 to 10 is refused.
    """
    check_known("split of STL-10", split, SPLITS)
    root = folder_of(folder, "stl10_binary")
    hint = (
        "`stl10:DIR` takes the folder with the official binary files, train_X.bin, train_y.bin, "
        "test_X.bin and test_y.bin."
    )
    columns = records(root / f"{split}_X.bin", 3 * SIDE * SIDE, hint).reshape(-1, 3, SIDE, SIDE)
    numbers = records(root / f"{split}_y.bin", 1, hint)[:, 0].astype(np.int64)
    classes = class_names(root / "class_names.txt", CLASSES)
    wrong = (numbers < 1) | (numbers > len(classes))
    if wrong.any():
        where = int(wrong.argmax())
        raise DataError(
            f"Label {where} in {root / f'{split}_y.bin'} is {numbers[where]}, but STL-10 counts "
            "from 1 to 10. This is not STL-10's file; fetch it again."
        )
    return ImageSet(f"stl10-{split}", columns.transpose(0, 1, 3, 2), numbers - 1, classes)
