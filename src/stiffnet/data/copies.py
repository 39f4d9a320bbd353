"""Test images that are training images as well: the same file, a link to it, or a copy of it."""

import filecmp
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from stiffnet.data.folder import ImageFolder


def copies(train: ImageFolder, test: ImageFolder) -> Iterator[tuple[Path, Path]]:
    """Yield each test image that has the content of a training image, and the latter.

    Files of other sizes are not opened. A file that is not there is none.

    Raises:
        OSError: If a file cannot be read.
    """
    same_size: dict[int, list[Path]] = defaultdict(list)
    for path in _files(train):
        same_size[path.stat().st_size].append(path)
    for path in _files(test):
        for other in same_size.get(path.stat().st_size, ()):
            if filecmp.cmp(path, other, shallow=False):
                yield path, other
                break


def _files(images: ImageFolder) -> list[Path]:
    paths = (images.root / file for file in images.files)
    return [path for path in paths if path.is_file()]
