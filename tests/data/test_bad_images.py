"""Laws of files that are no images: each is named with its reason, and can be left out."""

import io
import os
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from stiffnet.data.folder import image_folder
from stiffnet.data.images import Preparation
from stiffnet.errors import DataError

RGB = Preparation((3, 8, 8), (0.0,) * 3, (1.0,) * 3)


def picture(side=40):
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8))


def encoded(image, kind, **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


JPEG = encoded(picture(), "JPEG", quality=90)
PNG = encoded(picture(), "PNG")

BAD = {
    "nothing": (b"", "it is empty"),
    "text": (b"this is no image, whatever its name says", "it has no known image format"),
    "html": (b"<!DOCTYPE html><html><body>404</body></html>", "it has no known image format"),
    "zeros": (bytes(1000), "it has no known image format"),
    "half a jpeg": (JPEG[: len(JPEG) // 2], "truncated"),
    "half a png": (PNG[: len(PNG) // 2], "."),
    "a gif": (encoded(picture(), "GIF"), "it has no known image format"),
}
GOOD = {
    "a pixel": (encoded(picture().crop((0, 0, 1, 1)), "PNG"), "png"),
    "a line": (encoded(picture().crop((0, 0, 1, 24)), "PNG"), "png"),
    "cmyk": (encoded(picture().convert("CMYK"), "JPEG"), "jpg"),
    "grey": (encoded(picture().convert("L"), "JPEG"), "jpg"),
    "16 bits": (encoded(Image.fromarray(np.full((9, 9), 40000, np.uint16)), "PNG"), "png"),
    "palette": (encoded(picture().quantize(16), "PNG"), "png"),
    "alpha": (encoded(picture().convert("RGBA"), "PNG"), "png"),
    "animated": (
        encoded(picture(), "WEBP", save_all=True, append_images=[picture().rotate(90)]),
        "webp",
    ),
    "many pages": (encoded(picture(), "TIFF", save_all=True, append_images=[picture()]), "tif"),
    "named otherwise": (PNG, "jpg"),
}


@pytest.fixture
def place(tmp_path):
    """Two classes of good images of every kind."""
    for name in ("cat", "dog"):
        (tmp_path / "set" / name).mkdir(parents=True)
        for kind, (content, suffix) in GOOD.items():
            (tmp_path / "set" / name / f"{kind}.{suffix}").write_bytes(content)
    return tmp_path / "set"


@pytest.mark.parametrize("workers", [0, 2])
def test_good_images_all_stay(place, workers):
    folder = image_folder(place)
    left, faults = folder.without_bad_images(workers=workers)
    assert faults == []
    assert left.files == folder.files
    assert np.array_equal(left.labels, folder.labels)


@pytest.mark.parametrize("workers", [0, 2])
def test_bad_ones_are_left_out_and_each_is_named(place, workers):
    for kind, (content, _) in BAD.items():
        (place / "cat" / f"{kind}.jpg").write_bytes(content)
    folder = image_folder(place)
    left, faults = folder.without_bad_images(RGB, workers=workers)
    assert len(left) == 2 * len(GOOD)
    assert len(left) + len(faults) == len(folder)
    assert left.classes == folder.classes
    assert np.bincount(left.labels).tolist() == [len(GOOD), len(GOOD)]
    assert not any(kind in file for file in left.files for kind in BAD)
    for kind in BAD:
        [fault] = [each for each in faults if f"{kind}.jpg" in each]
        assert fault.startswith(f"{place / 'cat' / kind}.jpg is not an image that can be read: ")
        assert "\n" not in fault
    [(images, labels)] = left.batches(RGB, batch_size=1000)
    assert len(images) == len(labels) == len(left)
    with pytest.raises(DataError, match="can be read"):
        list(folder.batches(RGB, batch_size=1000))


@pytest.mark.parametrize("kind", BAD)
def test_the_reason_is_given(place, kind):
    content, match = BAD[kind]
    (place / "dog" / "bad.jpg").write_bytes(content)
    with pytest.raises(DataError, match=rf"bad\.jpg is not an image that can be read: .*{match}"):
        list(image_folder(place).batches(RGB, batch_size=1000))


@pytest.mark.parametrize(("whole", "suffix"), [(JPEG, "jpg"), (PNG, "png")], ids=["jpeg", "png"])
def test_a_file_cut_anywhere_is_refused_or_shows_the_whole_picture(tmp_path, whole, suffix):
    (tmp_path / "set" / "a").mkdir(parents=True)
    for length in {*np.linspace(0, len(whole), 101).astype(int).tolist()}:
        (tmp_path / "set" / "a" / f"{length}.{suffix}").write_bytes(whole[:length])
    folder = image_folder(tmp_path / "set")
    left, faults = folder.without_bad_images(RGB)
    assert len(folder) == 101 == len(left) + len(faults)
    assert len(faults) >= 95  # a missing end mark alone leaves every pixel there
    [(images, _)] = left.batches(RGB, batch_size=101)
    assert f"a/{len(whole)}.{suffix}" in left.files
    assert torch.equal(images, images[:1].expand_as(images))


def test_a_bomb_is_refused_by_its_header(tmp_path):
    """A small file that says it is twenty thousand pixels square."""
    header = b"IHDR" + struct.pack(">II", 20_000, 20_000) + PNG[24:29]
    bomb = PNG[:12] + header + struct.pack(">I", zlib.crc32(header)) + PNG[33:]
    (tmp_path / "set" / "a").mkdir(parents=True)
    (tmp_path / "set" / "a" / "bomb.png").write_bytes(bomb)
    (tmp_path / "set" / "a" / "fine.png").write_bytes(PNG)
    left, [fault] = image_folder(tmp_path / "set").without_bad_images()
    assert "bomb.png" in fault
    assert "more pixels than is safe" in fault
    assert left.files == ("a/fine.png",)


def test_a_class_without_one_good_image_is_an_error(place):
    for path in (place / "dog").iterdir():
        path.write_bytes(b"")
    with pytest.raises(DataError, match=r"No image of the class 'dog' can be read, .* is empty"):
        image_folder(place).without_bad_images()


def test_a_file_that_goes_away_is_left_out(place):
    folder = image_folder(place)
    (place / folder.files[3]).unlink()
    left, [fault] = folder.without_bad_images()
    assert len(left) == len(folder) - 1
    assert "it is gone" in fault


@pytest.mark.skipif(os.geteuid() == 0, reason="the administrator may read everything")
def test_a_file_that_may_not_be_read_is_left_out(place):
    folder = image_folder(place)
    (place / folder.files[3]).chmod(0)
    left, [fault] = folder.without_bad_images()
    assert len(left) == len(folder) - 1
    assert "you may not read it" in fault


def test_a_file_that_may_not_be_read_is_told_so(place, monkeypatch):
    """As the test above, for those who may read everything."""

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Image, "open", refuse)
    with pytest.raises(DataError, match="you may not read it"):
        list(image_folder(place).batches(RGB, batch_size=1))


def test_an_animation_shows_its_first_picture(tmp_path):
    flat = [Image.new("RGB", (8, 8), colour) for colour in ("white", "black")]
    path = tmp_path / "set" / "a" / "x.webp"
    path.parent.mkdir(parents=True)
    flat[0].save(path, save_all=True, append_images=flat[1:], lossless=True)
    [(images, _)] = image_folder(tmp_path / "set").batches(RGB, batch_size=1)
    assert torch.equal(images, torch.ones(1, 3, 8, 8))


def test_a_negative_number_of_workers_is_refused(place):
    with pytest.raises(DataError, match="`workers` is -1"):
        image_folder(place).without_bad_images(workers=-1)
