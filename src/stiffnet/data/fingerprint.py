"""What tells one set of images from another, cheaply enough for a million files."""

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np

from stiffnet.data.boxes import BoxedImages
from stiffnet.data.folder import ImageFolder
from stiffnet.data.images import ImageSet, spread
from stiffnet.errors import DataError

Fingerprint = Mapping[str, str | int]

OPENED = 256  # files whose content is compared; of all others, the size
AT_ONCE = 1024  # images in memory that are hashed together
WORDS = {
    "shape": "another shape",
    "labels": "other labels",
    "boxes": "other boxes",
    "names": "other file names",
    "sizes": "files of other sizes",
    "contents": "other content in the files",
    "pixels": "other pixels",
}


def fingerprint(images: ImageSet | ImageFolder | BoxedImages) -> Fingerprint:
    """Return a few short texts that change when the images do.

    Of images in memory, every pixel counts. Of a folder, the relative name, the size and the label
    of every file count, and the content of `OPENED` files that are spread over the classes: all of
    a small folder, and of a large one enough to notice another version of the whole. The place of
    the folder and the times of its files do not count. Of boxes, every number counts.
    """
    if isinstance(images, BoxedImages):
        numbers = (images.sizes, images.starts, images.boxes, images.areas, images.crowd)
        return {
            **fingerprint(images.pictures),
            "labels": _hash([images.labels.astype("<i8").tobytes()]),
            "boxes": _hash(np.asarray(each).astype("<f8").tobytes() for each in numbers),
        }
    labels = _hash([images.labels.astype("<i8").tobytes()])
    common: dict[str, str | int] = {"images": len(images), "labels": labels}
    if isinstance(images, ImageSet):
        parts = range(0, len(images), AT_ONCE)
        pixels = (np.array(images.images[at : at + AT_ONCE], order="C").tobytes() for at in parts)
        shape = " × ".join(map(str, images.images.shape[1:]))
        return {**common, "shape": shape, "pixels": _hash(pixels)}
    try:
        sizes = [(images.root / file).stat().st_size for file in images.files]
        chosen = spread(images.labels, OPENED) if images.files else ()
        contents = _hash((images.root / images.files[index]).read_bytes() for index in chosen)
    except OSError as error:
        raise DataError(
            f"{error.filename} could not be read: {error.strerror}. Bring it back, or leave out "
            "such files with `--skip-bad-images`."
        ) from error
    return {
        **common,
        "names": _hash(f"{file}\0".encode(errors="surrogateescape") for file in images.files),
        "sizes": _hash([np.array(sizes, dtype="<i8").tobytes()]),
        "contents": contents,
    }


def difference(before: Fingerprint, now: Fingerprint, name: str) -> str:
    """Say in what two sets of images, called `name`, differ; nothing if they do not.

    >>> difference({"images": 2, "pixels": "a"}, {"images": 2, "pixels": "b"}, "test images")
    'the test images now have other pixels'
    >>> difference({"images": 2, "pixels": "a"}, {"images": 3, "pixels": "b"}, "test images")
    'there are now 3 test images instead of 2'
    """
    if before.keys() != now.keys():
        return f"the {name} are now of another kind"
    if before["images"] != now["images"]:
        return f"there are now {now['images']:,} {name} instead of {before['images']:,}"
    words = [WORDS[key] for key in WORDS if before.get(key) != now.get(key)]
    return f"the {name} now have {' and '.join(words)}" if words else ""


def _hash(pieces: Iterable[bytes]) -> str:
    total = hashlib.sha256()
    for piece in pieces:
        total.update(piece)
    return total.hexdigest()[:32]
