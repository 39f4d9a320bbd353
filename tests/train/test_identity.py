"""A run goes on with the data that it began with, or not at all."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from stiffnet.data.images import ImageSet
from stiffnet.errors import CheckpointError, DataError, RecipeError
from stiffnet.network.open import open_model
from stiffnet.train import build
from stiffnet.train.identity import FORMAT, RUN, Identity, read_identity
from stiffnet.train.recipe import Recipe
from stiffnet.train.run import run
from train.faults import Stopper, pictures

TINY = Recipe(
    model="resnet20_cifar", data="generated:40", image_size=8, batch_size=8, epochs=2, padding=1
)


@pytest.fixture
def photos(tmp_path):
    """Two classes, dark and light, in six training and two test pictures each."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 6), ("val", 2)):
        for label, name in enumerate(("ape", "bee")):
            place = tmp_path / "photos" / split / name
            place.mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 100, (8, 8, 3), dtype=np.uint8) + 150 * label
                Image.fromarray(pixels.astype(np.uint8)).save(place / f"{number}.bmp")
    return tmp_path / "photos"


def stopped(recipe, out, at=2):
    with pytest.raises(Exception, match="which is kept in"):
        run(recipe, out, audience=Stopper(at))


def renamed(photos, **names):
    for split in ("train", "val"):
        for old, new in names.items():
            (photos / split / old).rename(photos / split / f"new-{new}")
        for new in names.values():
            (photos / split / f"new-{new}").rename(photos / split / new)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"bee": "cow"}, "its classes 'bee' are gone, and 'cow' are new"),
        ({"ape": "bee", "bee": "ape"}, "the training images now have other content in the files"),
        ({"ape": "zoo"}, "its classes 'ape' are gone, and 'zoo' are new"),
    ],
    ids=["renamed", "exchanged", "renamed and reordered"],
)
def test_other_classes_of_as_many_images_are_refused(photos, tmp_path, names, words):
    recipe = replace(TINY, data=str(photos))
    stopped(recipe, tmp_path / "run")
    renamed(photos, **names)
    with pytest.raises(DataError, match=f"began with other data: .*{words}") as refused:
        run(recipe, tmp_path / "run", resume=True)
    assert "Restore the data" in str(refused.value)
    assert not (tmp_path / "run/final").exists()
    renamed(photos, **{new: old for old, new in names.items()})
    run(recipe, tmp_path / "run", resume=True)
    assert open_model(tmp_path / "run/best").classes == ("ape", "bee")


def test_other_test_images_are_refused_too(photos, tmp_path):
    recipe = replace(TINY, data=str(photos))
    stopped(recipe, tmp_path / "run")
    (photos / "val/bee/0.bmp").rename(photos / "val/bee/7.bmp")
    with pytest.raises(DataError, match="data: the test images now have other file names"):
        run(recipe, tmp_path / "run", resume=True)


def test_the_same_data_in_another_place_are_the_same(photos, tmp_path):
    stopped(replace(TINY, data=str(photos)), tmp_path / "run")
    (tmp_path / "disk").mkdir()
    moved = shutil.move(photos, tmp_path / "disk" / "photos")
    run(replace(TINY, data=str(moved)), tmp_path / "run", resume=True)
    assert (tmp_path / "run/final").exists()


def test_other_pixels_in_memory_are_refused(tmp_path, monkeypatch):
    train, test = pictures(40, 0), pictures(10, 1)
    monkeypatch.setattr(build, "open_splits", lambda spec: (train, test))
    stopped(TINY, tmp_path / "run")
    brighter = replace(train, images=train.images + np.uint8(1))
    monkeypatch.setattr(build, "open_splits", lambda spec: (brighter, test))
    with pytest.raises(DataError, match="the training images now have other pixels"):
        run(TINY, tmp_path / "run", resume=True)


def test_classes_in_another_order_are_refused(tmp_path, monkeypatch):
    train, test = pictures(40, 0), pictures(10, 1)
    monkeypatch.setattr(build, "open_splits", lambda spec: (train, test))
    stopped(TINY, tmp_path / "run")
    turned = [
        ImageSet(each.name, each.images, each.labels, each.classes[::-1]) for each in (train, test)
    ]
    monkeypatch.setattr(build, "open_splits", lambda spec: tuple(turned))
    words = (
        "its classes were 'dark', 'grey', 'light' in this order, and are 'light', 'grey', 'dark'"
    )
    with pytest.raises(DataError, match=words):
        run(TINY, tmp_path / "run", resume=True)


def test_leaving_out_bad_images_is_part_of_the_recipe(photos, tmp_path):
    (photos / "train/ape/6.bmp").write_bytes(b"<html>")
    recipe = replace(TINY, data=str(photos), skip_bad_images=True)
    stopped(recipe, tmp_path / "run")
    assert "skip_bad_images = true" in (tmp_path / "run/recipe.toml").read_text()
    with pytest.raises(RecipeError, match=r"skip_bad_images \(True there, False now\)"):
        run(replace(recipe, skip_bad_images=False), tmp_path / "run", resume=True)
    (photos / "train/ape/5.bmp").write_bytes(b"<html>")
    with pytest.raises(DataError, match="there are now 11 training images instead of 12"):
        run(recipe, tmp_path / "run", resume=True)


def test_a_run_that_says_nothing_of_its_data_is_not_resumed(tmp_path):
    stopped(TINY, tmp_path / "run")
    (tmp_path / "run" / RUN).unlink()
    with pytest.raises(
        CheckpointError, match=r"it is not known which data it began with\. Finish it"
    ):
        run(TINY, tmp_path / "run", resume=True)
    assert (tmp_path / "run/checkpoints").is_dir()


def test_what_a_run_says_of_itself_is_in_every_part(tmp_path):
    run(TINY, tmp_path / "run")
    told = {(tmp_path / "run" / part / RUN).read_text() for part in ("", "final", "best")}
    assert len(told) == 1
    said = read_identity(tmp_path / "run")
    assert len(said.run) == 32
    assert said.train["images"] == 40
    run(TINY, tmp_path / "other")
    assert read_identity(tmp_path / "other").run != said.run
    assert replace(read_identity(tmp_path / "other"), run=said.run) == said


WHOLE = {"format": FORMAT, "run": "a", "classes": [], "train": {"images": 3}, "test": {}}
ODD = {
    "no JSON": b"{",
    "no text": b"\xff\xfe\x00",
    "nothing": b"",
    "deep": b"[" * 100_000,
    **{
        name: json.dumps(content).encode()
        for name, content in {
            "a list": [],
            "another format": {**WHOLE, "format": "x"},
            "no run": {**WHOLE, "run": 3},
            "a path": {**WHOLE, "run": "../x"},
            "classes": {**WHOLE, "classes": [1]},
            "facts": {**WHOLE, "train": []},
            "counts": {**WHOLE, "train": {"images": "3"}},
            "a key more": {**WHOLE, "more": 1},
        }.items()
    },
}


@pytest.mark.parametrize("content", ODD.values(), ids=ODD)
def test_anything_else_says_nothing(content, tmp_path):
    (tmp_path / RUN).write_bytes(content)
    assert read_identity(tmp_path) is None
    (tmp_path / RUN).write_text(Identity(run="ab", classes=("x",)).to_json())
    assert read_identity(tmp_path) == Identity(run="ab", classes=("x",))
