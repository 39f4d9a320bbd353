"""Photographs without classes, and tiles of those that scikit-learn carries."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stiffnet.data import as_photos, open_data, open_splits
from stiffnet.data.images import Preparation
from stiffnet.data.photos import MOST, photo_splits
from stiffnet.data.picture import named_picture, open_picture
from stiffnet.data.tiles import tiles
from stiffnet.errors import DataError

SMALL = Preparation((3, 8, 8), (0.0,) * 3, (1.0,) * 3)


def put(*names):
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(f"not opened yet: {name}")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_one_in_eight_is_held_out_and_no_photograph_is_lost():
    put(*(f"all/{number:02}.jpg" for number in range(17)), "all/deep/x.png", "all/notes.txt")
    train, test = photo_splits("all")
    assert len(test) == 2
    assert sorted((*train.files, *test.files)) == [
        *(f"{number:02}.jpg" for number in range(17)), "deep/x.png",
    ]  # fmt: skip
    assert train.classes == test.classes == ("photo",)
    again, held = photo_splits("all")
    assert (again.files, held.files) == (train.files, test.files)


def test_of_many_a_hundred_are_held_out():
    put(*(f"many/{number}.jpg" for number in range(8 * MOST + 80)))
    assert len(photo_splits("many")[1]) == MOST


def test_folders_say_what_is_held_out():
    put("all/train/a/1.jpg", "all/train/2.jpg", "all/val/3.jpg")
    train, test = photo_splits("all")
    assert (train.files, test.files) == (("2.jpg", "a/1.jpg"), ("3.jpg",))
    assert open_data("photos:all").files == test.files
    assert open_data("photos:all", "train").files == train.files


def test_a_photograph_that_is_held_out_is_nowhere_else():
    put("all/train/a.jpg", "all/val/b.jpg")
    Path("all/val/b.jpg").write_bytes(Path("all/train/a.jpg").read_bytes()[::-1])  # of one size
    assert len(photo_splits("all")[0]) == 1
    for make in (Path.symlink_to, Path.hardlink_to, copied):
        copy = Path("all/val/c.jpg")
        make(copy, Path("all/train/a.jpg").absolute())
        refusal = r"all/val/c.jpg is held out, and all/train/a.jpg, which is trained on, is the sa"
        with pytest.raises(DataError, match=refusal if make is not Path.symlink_to else "link"):
            open_splits("photos:all")
        copy.unlink()
    put(*(f"flat/{number:02}.jpg" for number in range(8)))
    [held] = photo_splits("flat")[1].files
    Path("flat/01.jpg").write_bytes(Path("flat", held).read_bytes())
    with pytest.raises(DataError, match=f"flat/{held} is held out, and flat/01.jpg"):
        photo_splits("flat")
    Path("flat/01.jpg").unlink()
    Path("flat/01.jpg").symlink_to(held)  # within the folder, which is allowed otherwise
    with pytest.raises(DataError, match=f"flat/{held} is held out, and flat/01.jpg"):
        photo_splits("flat")


def copied(copy, original):
    copy.write_bytes(original.read_bytes())


def test_only_folders_become_photographs():
    put("all/1.jpg")
    assert as_photos("./all") == "photos:all"
    assert as_photos("folder:all") == "photos:all"
    assert [as_photos(each) for each in ("tiles", "photos:all", "cifar10:all")] == [
        "tiles", "photos:all", "cifar10:all",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("none", "none is not a folder"),
        ("empty", r"empty holds no pictures. Put .png"),
        ("one", "one holds a single picture"),
        ("out", "is a link that leaves the folder"),
        ("", "`photos` needs the folder"),
    ],
)
def test_a_folder_that_cannot_be_used_is_named(place, words):
    put("one/a.jpg", "elsewhere/b.jpg", "out/c.jpg")
    Path("empty").mkdir()
    Path("out/d.jpg").symlink_to(Path("elsewhere/b.jpg").absolute())
    with pytest.raises(DataError, match=words):
        open_splits(f"photos:{place}")


def test_tiles_are_the_photographs_pixels_each_once():
    train, test = open_splits("tiles")
    assert (len(train), len(test)) == (96, 24)
    assert train.classes == ("china", "flower")
    every = {each.tobytes() for part in (train, test) for each in part.images}
    assert len(every) == 120
    pixels = np.asarray(named_picture("china")).transpose(2, 0, 1)
    assert np.array_equal(tiles("train").images[0], pixels[:, :64, :64])
    assert (
        pixels[:, 320:384, 576:640].tobytes() in every
    )  # the last one at the right, at the bottom
    with pytest.raises(DataError, match="`tiles` needs no folder"):
        open_data("tiles:here")


def test_a_name_wins_over_a_file_and_both_can_be_had():
    Image.new("RGB", (3, 2)).save("flower", "PNG")
    assert open_picture("flower").size == (640, 427)
    assert open_picture("./flower").size == (3, 2)
    assert open_picture(Path("flower")).size == (3, 2)
    batch, _ = next(iter(tiles("test").batches(SMALL, batch_size=2)))
    assert batch.shape == (2, 3, 8, 8)
