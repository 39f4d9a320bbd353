"""One picture by its file, or by its name where scikit-learn carries it."""

import os
from pathlib import Path

import numpy as np
from PIL import Image

from stiffnet.data.decode import decoding, read_image

NAMED = ("china", "flower")  # photographs of 640×427 pixels


def named_picture(name: str) -> Image.Image | None:
    """Return a photograph that scikit-learn carries; None if it has none of that name."""
    if name not in NAMED:
        return None
    from sklearn.datasets import load_sample_image

    return Image.fromarray(np.asarray(load_sample_image(f"{name}.jpg")))


def open_picture(spec: str | os.PathLike[str]) -> Image.Image:
    """Decode a picture in colour, turned as its camera says; transparency is left out.

    Args:
        spec: A file, or ``china`` or ``flower``. A name wins over a file of the same name; write
            ``./NAME`` for the file.

    Raises:
        DataError: If it cannot be read.
    """
    if isinstance(spec, str) and (found := named_picture(spec)) is not None:
        return found
    path = Path(spec)
    with decoding(path):
        return read_image(path, 3)
