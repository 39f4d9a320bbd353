"""Images that are there twice: as the same file, a link to it, or a copy of it."""

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

from stiffnet.data.folder import ImageFolder, reading

LOOKED_AT = 200_000  # files of which the sizes are asked for; with more, nothing is compared
OPENED = 20_000  # of which about as many are opened
BLOCK = 4096  # bytes in the middle of a file that are compared before all of it is read

Groups = list[list[int]]


def copies(train: ImageFolder, test: ImageFolder) -> list[tuple[Path, Path]]:
    """Return each test image that has the content of a training image, and the latter.

    Files of other sizes are not opened. A file that is not there is none.

    Raises:
        DataError: If a file cannot be read.
    """
    with reading(test.root):
        paths, owners = _files(train, test)
        groups, _ = _alike(paths, [tested for tested, _ in owners])
    found = {i: group[0] for group in groups for i in group if owners[i][0]}
    return [(paths[i], paths[found[i]]) for i in sorted(found)]


def remarks_on_copies(train: ImageFolder, test: ImageFolder, *, most: int = OPENED) -> list[str]:
    """Say how many test images are trained on, and how many images are in several classes.

    Where more than `most` files have a size in common, some of them are compared, evenly chosen. Of
    very many files nothing is said, since a file server takes long to tell their sizes.

    Raises:
        DataError: If a file cannot be read.
    """
    if len(train) + len(test) > LOOKED_AT:
        return []
    with reading(train.root):
        paths, owners = _files(train, test)
        groups, all_seen = _alike(paths, owners, most)
    least = "" if all_seen else "at least "
    said = []
    known = [g for g in groups if len({owners[i][0] for i in g}) > 1]
    if both := [i for group in known for i in group if owners[i][0]]:
        said.append(
            f"{least}{len(both):,} of {len(test):,} test images are training images too, such as "
            f"{paths[both[0]]}, so that the accuracy says less about others."
        )
    if torn := [g for g in groups if len({owners[i][1] for i in g}) > 1]:
        first = torn[0][0]
        other = next(i for i in torn[0] if owners[i][1] != owners[first][1])
        several = "1 image is" if len(torn) == 1 else f"{len(torn):,} images are"
        said.append(
            f"{least}{several} in more than one class, such as {paths[first]}, which is also "
            f"{paths[other]}. Delete it where it does not belong."
        )
    return said


def _files(train: ImageFolder, test: ImageFolder) -> tuple[list[Path], list[tuple[bool, int]]]:
    """The files that are there; and of each, whether it is a test image, and its label."""
    paths, owners = [], []
    for tested, images in ((False, train), (True, test)):
        for file, label in zip(images.files, images.labels.tolist(), strict=True):
            path = images.root / file
            if path.is_file():
                paths.append(path)
                owners.append((tested, label))
    return paths, owners


def _alike(
    paths: Sequence[Path], owners: Sequence[Hashable], most: int | None = None
) -> tuple[Groups, bool]:
    """Group files of equal content that belong to more than one owner.

    Returns:
        The groups, as indices, and whether all of them are there: of more than `most` files that
        would have to be opened, some groups of equal sizes are left out.
    """

    def split(groups: Groups, key: Callable[[Path], Hashable]) -> Groups:
        found = []
        for group in groups:
            parts: dict[Hashable, list[int]] = defaultdict(list)
            for i in group:
                parts[key(paths[i])].append(i)
            found += [part for part in parts.values() if len({owners[i] for i in part}) > 1]
        return found

    groups = split([list(range(len(paths)))], lambda path: path.stat().st_size)
    opened = sum(map(len, groups))
    stride = 1 if most is None else max(1, math.ceil(opened / most))
    chosen = groups[::stride]
    return split(split(chosen, _middle), _digest), len(chosen) == len(groups)


def _middle(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(path.stat().st_size // 2)
        return file.read(BLOCK)


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
