"""Laws of training and test images that belong together: classes are matched by name."""

import numpy as np
import pytest
from PIL import Image

from stiffnet.data import open_data, open_splits, spec_of_tests
from stiffnet.data.folder import ImageFolder
from stiffnet.data.images import ImageSet
from stiffnet.data.splits import agreeing
from stiffnet.errors import DataError


def make(root, **splits):
    """Make a folder for each split, and in it a folder with an image for each class."""
    for split, classes in splits.items():
        for name in classes:
            path = root / split / name / "x.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 4)).save(path)


@pytest.mark.parametrize("training", ["train", "training"])
@pytest.mark.parametrize("testing", ["val", "valid", "validation", "test"])
def test_a_folder_is_opened_by_its_splits(tmp_path, training, testing):
    make(tmp_path, **{training: ["cat", "dog"], testing: ["cat", "dog"]})
    for spec in (tmp_path, f"folder:{tmp_path}"):
        train, test = open_splits(spec)
        assert (train.root, test.root) == (tmp_path / training, tmp_path / testing)
        assert train.classes == test.classes == ("cat", "dog")
    assert open_data(tmp_path, "train").root == tmp_path / training
    assert open_data(tmp_path, "test").root == tmp_path / testing


@pytest.mark.parametrize("others", [["test"], ["val", "test"], ["validation", "valid", "test"]])
def test_one_rule_says_which_folder_has_the_test_images(tmp_path, others):
    make(tmp_path, **{name: ["a"] for name in ("train", *others)})
    _, test = open_splits(tmp_path)
    assert open_data(tmp_path, "test").root == test.root
    assert open_data(spec_of_tests(tmp_path)).root == test.root


def test_val_comes_before_test_and_another_name_is_that_of_a_folder(tmp_path):
    make(tmp_path, train=["a"], val=["a"], test=["a"], extra=["a"])
    assert open_splits(tmp_path)[1].root == tmp_path / "val"
    for name in ("val", "extra"):
        assert open_data(tmp_path, name).root == tmp_path / name


def test_numbers_as_names_keep_their_labels(tmp_path):
    names = ["1", "2", "10", "20"]
    make(tmp_path, train=names, val=names[::-1])
    train, test = open_splits(tmp_path)
    assert sorted(train.classes) == sorted(names)
    for split in (train, test):
        for file, label in zip(split.files, split.labels, strict=True):
            assert train.classes[label] == file.split("/")[0]


def test_hidden_folders_are_no_classes(tmp_path):
    make(tmp_path, train=["a", "b", ".ipynb_checkpoints"], val=["a", "b", ".git"])
    make(tmp_path, **{".ipynb_checkpoints": ["a"]})
    assert open_splits(tmp_path)[1].classes == ("a", "b")


@pytest.mark.parametrize(
    ("train", "val", "match"),
    [
        ("ab", "abc", r"differ: only \S+/val has 'c'\. Give both"),
        ("abc", "ab", r"differ: only \S+/train has 'c'\. Give both"),
        ("abc", "abd", r"only \S+/train has 'c', and only \S+/val has 'd'\. Give both"),
        ("abcdefgh", "a", r"train has 'b', 'c', 'd', 'e', 'f' and 2 more"),
        (["cat"], ["Cat"], r"train has 'cat', and only \S+/val has 'Cat'"),
    ],
)
def test_classes_of_one_split_only_are_all_named(tmp_path, train, val, match):
    make(tmp_path, train=train, val=val)
    with pytest.raises(DataError, match=match) as caught:
        open_splits(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("splits", "match"),
    [
        ({"val": ["a"]}, "has no folder `train` or `training`. Put a folder for each class into"),
        ({"train": ["a"]}, "has no folder `val` or `valid` or `validation` or `test`"),
        ({"cat": ["a"], "dog": ["a"]}, "has no folder `train`"),
    ],
)
def test_a_missing_split_is_named(tmp_path, splits, match):
    make(tmp_path, **splits)
    with pytest.raises(DataError, match=match):
        open_splits(tmp_path)


def test_a_missing_split_is_named_where_one_is_asked_for(tmp_path):
    make(tmp_path, val=["a"])
    with pytest.raises(DataError, match="has no folder `train` or `training`"):
        open_data(tmp_path, "train")
    with pytest.raises(DataError, match="extra is not a folder"):
        open_data(tmp_path, "extra")


def test_no_folder_at_all_is_told_so(tmp_path):
    with pytest.raises(DataError, match="nowhere is not a folder"):
        open_splits(tmp_path / "nowhere")
    with pytest.raises(DataError, match="Write `folder:DIR`"):
        open_splits("folder:")


def test_a_class_needs_training_images_and_not_test_images(tmp_path):
    make(tmp_path, train=["a", "b", "c"], val=["a", "c"])
    (tmp_path / "val" / "b").mkdir()
    train, test = open_splits(tmp_path)
    assert test.classes == train.classes == ("a", "b", "c")
    assert set(test.labels.tolist()) == {0, 2}
    (tmp_path / "train" / "d").mkdir()
    (tmp_path / "val" / "d").mkdir()
    with pytest.raises(DataError, match=r"class folder \S+/train/d holds no images"):
        open_splits(tmp_path)


def test_another_order_of_the_same_names_maps_the_labels(tmp_path):
    labels, classes = np.array([0, 1, 2, 2]), ("c", "a", "b")
    memory = ImageSet("made", np.zeros((4, 1, 2, 2), np.uint8), labels, classes)
    disk = ImageFolder("made", tmp_path, ("w", "x", "y", "z"), labels, classes)
    for source in (memory, disk):
        mapped = agreeing(source, ("a", "b", "c"), "here", "there")
        assert mapped.classes == ("a", "b", "c")
        assert [mapped.classes[label] for label in mapped.labels] == ["c", "a", "b", "b"]
        assert mapped.labels.dtype == np.int64
        assert agreeing(source, classes, "here", "there") is source


def test_names_that_look_the_same_are_told_apart(tmp_path):
    """A system that composes accents, and one that does not, write two names."""
    composed, apart = "caf\u00e9", "cafe\u0301"
    make(tmp_path / "two", train=[composed, "tea"], val=[apart, "tea"])
    with pytest.raises(DataError, match=f"'{composed}' looks the same in both, .* Unicode forms"):
        open_splits(tmp_path / "two")
    make(tmp_path / "one", train=[composed, apart], val=[composed, apart])
    with pytest.raises(DataError, match=f"holds the class '{composed}' twice, .* look the same"):
        open_splits(tmp_path / "one")
