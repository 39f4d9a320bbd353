"""Laws of the embedded digits and of the table of data sets."""

import numpy as np
import pytest

from stiffnet.data import DATA, open_data
from stiffnet.data.digits import digits
from stiffnet.errors import DataError, UnknownNameError


def test_all_digits_are_there():
    everything = digits()
    assert len(everything) == 1797
    assert everything.images.shape == (1797, 1, 8, 8)
    assert (everything.images.min(), everything.images.max()) == (0, 255)
    assert everything.classes == tuple("0123456789")
    assert set(everything.labels) == set(range(10))


def test_the_split_parts_everything_once():
    everything, train, test = digits(), digits("train"), digits("test")
    assert (train.name, test.name) == ("digits-train", "digits-test")

    def rows(part):
        return sorted(
            (int(label), image.tobytes())
            for label, image in zip(part.labels, part.images, strict=True)
        )

    assert sorted(rows(train) + rows(test)) == rows(everything)


def test_a_fifth_of_each_class_is_for_testing():
    whole, test = (np.bincount(part.labels) for part in (digits(), digits("test")))
    assert (test == whole // 5).all()


def test_the_split_is_always_the_same():
    whole = digits()
    seen, expected = [0] * 10, []
    for place, label in enumerate(whole.labels.tolist()):
        seen[label] += 1
        if seen[label] % 5 == 0:
            expected.append(place)
    assert digits("test").labels.tolist() == whole.labels[expected].tolist()
    assert np.array_equal(digits("test").images, whole.images[expected])


def test_an_unknown_split_is_refused():
    with pytest.raises(UnknownNameError, match=r"'tset'\. Did you mean 'test'"):
        digits("tset")


def test_the_table_names_every_set_once_with_a_summary():
    assert [entry.name for entry in DATA] == [
        "digits", "cifar10", "cifar100", "stl10", "folder", "coco", "shapes", "photos", "tiles",
        "generated",
    ]  # fmt: skip
    assert all(entry.summary and "\n" not in entry.summary for entry in DATA)


def test_digits_open_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()  # a name wins over a folder
    assert len(open_data("digits")) == 1797
    assert len(open_data("digits", "train")) + len(open_data("digits", "test")) == 1797


@pytest.mark.parametrize(
    ("spec", "error", "match"),
    [
        ("digts", UnknownNameError, "no data set called 'digts'. Did you mean 'digits'"),
        ("cifr10:/somewhere", UnknownNameError, "Did you mean 'cifar10'"),
        (
            "imagenet",
            UnknownNameError,
            "Known: digits, cifar10, cifar100, stl10, folder, coco",
        ),
        ("", UnknownNameError, "no data set"),
        ("digits:here", DataError, "needs no folder"),
        ("cifar10", DataError, "Write `cifar10:DIR`"),
        ("cifar10:", DataError, "Write `cifar10:DIR`"),
        ("folder:", DataError, "Write `folder:DIR`"),
        ("./nowhere", DataError, "nowhere is not a folder"),
        ("folder:nowhere", DataError, "nowhere is not a folder"),
        ("cifar10:nowhere", DataError, r"test_batch\.bin is not there"),
    ],
)
def test_what_cannot_be_opened_is_one_clear_sentence(tmp_path, monkeypatch, spec, error, match):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=match):
        open_data(spec)
