"""Laws of images that are there twice, in training and test images, or in two classes."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stiffnet.data import open_splits
from stiffnet.data.copies import copies, remarks_on_copies


@pytest.fixture
def folder(tmp_path):
    """Forty images of one file size, each another one, in two splits and two classes."""
    draws = np.random.default_rng(0)
    for number in range(40):
        split, name = "train" if number < 30 else "val", "cat" if number % 2 else "dog"
        path = tmp_path / split / name / f"{number}.bmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = draws.integers(256, size=(4, 4, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    return tmp_path


def remarks(folder, **given):
    return remarks_on_copies(*open_splits(folder), **given)


def test_nothing_is_said_of_different_images(folder):
    assert remarks(folder) == []


def test_test_images_that_are_trained_on_are_counted(folder):
    """As many as were copied, whatever they are called; twice in training is once in testing."""
    for number, target in ((1, "x.bmp"), (3, "y.bmp"), (5, "z.bmp")):
        shutil.copy(folder / f"train/cat/{number}.bmp", folder / "val/cat" / target)
    shutil.copy(folder / "train/cat/1.bmp", folder / "train/cat/again.bmp")
    [said] = remarks(folder)
    assert said.startswith("3 of 13 test images are training images too, such as ")
    assert str(folder / "val/cat/x.bmp") in said


def test_an_image_in_two_classes_is_told(folder):
    shutil.copy(folder / "train/cat/1.bmp", folder / "train/dog/other.bmp")
    [said] = remarks(folder)
    assert said.startswith("1 image is in more than one class")
    assert "train/cat/1.bmp" in said
    assert "train/dog/other.bmp" in said


def test_a_test_image_under_another_label_is_both(folder):
    shutil.copy(folder / "train/cat/1.bmp", folder / "val/dog/other.bmp")
    first, second = remarks(folder)
    assert first.startswith("1 of 11 test images")
    assert second.startswith("1 image is")


def test_copies_of_one_class_and_split_are_nobodys_business(folder):
    shutil.copy(folder / "train/cat/1.bmp", folder / "train/cat/again.bmp")
    assert remarks(folder) == []


def test_of_very_many_files_some_are_compared(folder, monkeypatch):
    """Then the count is a lower bound, and is called one."""
    for size in range(20):  # twenty pairs, each of a size of its own
        for split in ("train", "val"):
            (folder / f"{split}/cat/pair{size}.png").write_bytes(b"x" * (1000 + size))
    shutil.rmtree(folder / "val/dog")
    (folder / "val/dog").mkdir()
    assert remarks(folder)[0].startswith("20 of ")
    assert remarks(folder, most=20)[0].startswith("at least ")


def test_files_are_read_once_however_many_have_one_size(folder, monkeypatch):
    """A comparison of pairs would open each of them often."""
    opened = []
    real = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *args: opened.append(self) or real(self, *args))
    assert list(copies(*open_splits(folder))) == []
    assert len(opened) == len(set(opened)) == 40
