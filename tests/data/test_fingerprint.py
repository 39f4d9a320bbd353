"""Two sets of images have one fingerprint exactly if a run would learn the same from both."""

import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from stiffnet.data.digits import digits
from stiffnet.data.fingerprint import difference, fingerprint
from stiffnet.data.folder import image_folder
from stiffnet.errors import DataError


@pytest.fixture
def place(tmp_path):
    """Two classes of three pictures, all of one size in bytes."""
    for label, name in enumerate(("cat", "dog")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(3):
            pixels = np.full((4, 4, 3), 40 * label + number, dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.bmp")
    return tmp_path / "photos"


def told(before, place):
    return difference(before, fingerprint(image_folder(place)), "training images")


def test_a_copy_elsewhere_with_other_times_is_the_same(place, tmp_path):
    before = fingerprint(image_folder(place))
    shutil.copytree(place, tmp_path / "copy")
    os.utime(tmp_path / "copy" / "cat" / "0.bmp", (0, 0))
    assert told(before, tmp_path / "copy") == ""


def rename(place):
    (place / "cat" / "0.bmp").rename(place / "cat" / "00.bmp")


def grow(place):
    with (place / "cat" / "0.bmp").open("ab") as stream:
        stream.write(b"\0")


def swap(place):
    one, other = (place / name / "0.bmp" for name in ("cat", "dog"))
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def move(place):
    (place / "cat" / "0.bmp").rename(place / "dog" / "9.bmp")


CHANGES = {
    rename: "the training images now have other file names",
    grow: "the training images now have files of other sizes and other content in the files",
    swap: "the training images now have other content in the files",
    move: "the training images now have other labels and other file names and other content in the "
    "files",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_whatever_changes_is_told(place, change):
    before = fingerprint(image_folder(place))
    change(place)
    assert told(before, place) == CHANGES[change]


def test_a_picture_more_is_told_by_numbers(place):
    before = fingerprint(image_folder(place))
    shutil.copy(place / "cat" / "0.bmp", place / "cat" / "3.bmp")
    assert told(before, place) == "there are now 7 training images instead of 6"


def test_a_file_that_is_gone_is_named(place):
    folder = image_folder(place)
    (place / "dog" / "2.bmp").unlink()
    with pytest.raises(DataError, match=r"dog/2\.bmp could not be read: No such file"):
        fingerprint(folder)


def test_every_pixel_and_label_in_memory_counts():
    plain = digits("test")
    before = fingerprint(plain)
    assert difference(before, fingerprint(digits("test")), "images") == ""
    pixels, labels = plain.images.copy(), plain.labels.copy()
    pixels[-1, 0, -1, -1] ^= 1
    labels[-1] = (labels[-1] + 1) % 10
    for change, words in (
        ({"images": pixels}, "the images now have other pixels"),
        ({"labels": labels}, "the images now have other labels"),
        (
            {"images": plain.images.reshape(len(plain), 1, 4, 16)},
            "the images now have another shape",
        ),
    ):
        assert difference(before, fingerprint(replace(plain, **change)), "images") == words


def test_images_in_memory_are_not_those_of_a_folder(place):
    before, now = fingerprint(digits("test")), fingerprint(image_folder(place))
    assert difference(before, now, "images") == "the images are now of another kind"
