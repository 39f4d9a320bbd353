"""Laws that hold for every data set of the table, and of the ones without a file of their own."""

import numpy as np
import pytest
import torch

from stiffnet.data import DATA, open_data, open_splits
from stiffnet.data.augment import Augmentation
from stiffnet.data.cifar import CLASSES, CLASSES_100, cifar100
from stiffnet.data.generated import generated
from stiffnet.data.images import ImageSet, Preparation
from stiffnet.data.stl10 import CLASSES as STL_CLASSES, stl10
from stiffnet.errors import DataError, UnknownNameError


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def cifar10_files(root):
    root.mkdir(parents=True)
    for number, name in enumerate(
        [f"data_batch_{k}.bin" for k in range(1, 6)] + ["test_batch.bin"]
    ):
        records = noise(4, 3073, seed=number)
        records[:, 0] %= 10
        (root / name).write_bytes(records.tobytes())


def cifar100_files(root):
    root.mkdir(parents=True)
    for number, name in enumerate(("train", "test")):
        records = noise(6, 3074, seed=number)
        records[:, 0] %= 20
        records[:, 1] %= 100
        (root / f"{name}.bin").write_bytes(records.tobytes())


def stl10_files(root):
    root.mkdir(parents=True)
    for number, name in enumerate(("train", "test")):
        (root / f"{name}_X.bin").write_bytes(noise(3, 3 * 96 * 96, seed=number).tobytes())
        (root / f"{name}_y.bin").write_bytes(bytes([1, 10, 4 + number]))


OTHERS = ("folder", "photos", "coco", "shapes")  # files of any size, and boxes: tested elsewhere
FILES = {
    "cifar10": (cifar10_files, "cifar-10-batches-bin"),
    "cifar100": (cifar100_files, "cifar-100-binary"),
    "stl10": (stl10_files, "stl10_binary"),
}


@pytest.fixture(params=[entry.name for entry in DATA if entry.name not in OTHERS])
def spec(request, tmp_path):
    name = request.param
    if name not in FILES:
        return name
    make, folder = FILES[name]
    make(tmp_path / "data" / folder)
    return f"{name}:{tmp_path / 'data'}"


def test_both_splits_have_the_same_classes_and_other_images(spec):
    train, test = open_splits(spec)
    assert train.classes == test.classes
    assert len(set(train.classes)) == len(train.classes)
    assert train.name.endswith("-train")
    assert test.name.endswith("-test")
    assert train.images.shape[1:] == test.images.shape[1:]
    assert not np.array_equal(train.images[:3], test.images[:3])
    for split, source in (("train", train), ("test", test)):
        again = open_data(spec, split)
        assert np.array_equal(again.images, source.images)
        assert np.array_equal(again.labels, source.labels)


def test_it_can_be_measured_and_trained_on(spec):
    train, test = open_splits(spec)
    height, width = train.images.shape[2:]
    preparation = Preparation((3, height, width), (0.5,) * 3, (0.2,) * 3)
    for images, labels in (
        next(iter(test.batches(preparation, batch_size=3))),
        next(train.training_batches(preparation, Augmentation(), [np.arange(3)], seed=0, epoch=0)),
    ):
        assert images.shape == (3, 3, height, width)
        assert images.is_contiguous()
        assert torch.isfinite(images).all()
        assert labels.dtype == torch.int64


def test_a_folder_of_a_data_sets_name_is_passed_over_with_a_note(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert open_data("digits").notes == open_splits("digits")[0].notes == ()
    (tmp_path / "digits").mkdir()
    for images in (open_data("digits"), open_splits("digits")[0]):
        [note] = images.notes
        assert "`digits` is the data set of this name, and not the folder" in note
        assert images.chosen(np.arange(3)).notes == images.notes
    assert open_data("digits:test").notes == ()


def test_an_unknown_split_is_refused(spec):
    with pytest.raises(UnknownNameError, match=r"'tran'\. Did you mean 'train'"):
        open_data(spec, "tran")


@pytest.mark.parametrize("name", FILES)
def test_the_folder_with_the_files_and_the_one_above_it_both_do(tmp_path, name):
    make, folder = FILES[name]
    make(tmp_path / folder)
    one, other = open_data(f"{name}:{tmp_path}"), open_data(f"{name}:{tmp_path / folder}")
    assert np.array_equal(one.images, other.images)
    assert not one.images.flags.writeable


@pytest.mark.parametrize("name", FILES)
def test_a_missing_folder_or_file_is_named(tmp_path, name):
    with pytest.raises(DataError, match=f"Write `{name}:DIR`"):
        open_data(name)
    with pytest.raises(DataError, match=rf"nowhere/\w+\.bin is not there. `{name}:DIR` takes"):
        open_data(f"{name}:{tmp_path / 'nowhere'}")


@pytest.mark.parametrize(
    ("name", "file", "record"),
    [("cifar100", "test.bin", 3074), ("stl10", "test_X.bin", 27648), ("stl10", "test_y.bin", 1)],
)
def test_a_file_of_another_length_is_refused(tmp_path, name, file, record):
    FILES[name][0](tmp_path / "data")
    sizes = [0] if record == 1 else [0, 1, record - 1, 3 * record + 1]
    for size in sizes:
        (tmp_path / "data" / file).write_bytes(bytes(size))
        with pytest.raises(DataError, match=rf"{file} has {size:,} bytes"):
            open_data(f"{name}:{tmp_path / 'data'}")


@pytest.mark.parametrize("split", ["train", "test"])
def test_cifar100_is_read_as_it_is_described(tmp_path, split):
    cifar100_files(tmp_path / "data")
    content = (tmp_path / "data" / f"{split}.bin").read_bytes()
    read = cifar100(tmp_path / "data", split)
    assert read.classes == CLASSES_100
    for index in range(6):
        record = content[3074 * index : 3074 * (index + 1)]
        assert read.labels[index] == record[1]  # the fine label follows the coarse one
        for channel, row, column in ((0, 0, 0), (1, 5, 7), (2, 31, 30)):
            place = 2 + 1024 * channel + 32 * row + column
            assert read.images[index, channel, row, column] == record[place]


@pytest.mark.parametrize("split", ["train", "test"])
def test_stl10_is_read_column_by_column(tmp_path, split):
    stl10_files(tmp_path / "data")
    content = (tmp_path / "data" / f"{split}_X.bin").read_bytes()
    read = stl10(tmp_path / "data", split)
    assert read.labels.tolist() == [0, 9, 3 if split == "train" else 4]
    for index in range(3):
        for channel, row, column in ((0, 0, 1), (1, 5, 7), (2, 95, 30)):
            place = ((index * 3 + channel) * 96 + column) * 96 + row
            assert read.images[index, channel, row, column] == content[place]


@pytest.mark.parametrize(
    ("name", "file", "count"),
    [("cifar100", "fine_label_names.txt", 100), ("stl10", "class_names.txt", 10)],
)
def test_names_of_classes_are_taken_from_the_file_beside(tmp_path, name, file, count):
    FILES[name][0](tmp_path / "data")
    path, spec = tmp_path / "data" / file, f"{name}:{tmp_path / 'data'}"
    names = [f"number {number}" for number in range(count)]
    path.write_text("\n".join(names) + "\n\n")
    assert open_data(spec).classes == tuple(names)
    for wrong, match in (
        (names[1:], f"{count - 1} different names in {count - 1} lines"),
        ([names[0], *names[:-1]], f"{count - 1} different names in {count} lines"),
        ([], "0 different names in 0 lines"),
    ):
        path.write_text("\n".join(wrong))
        with pytest.raises(DataError, match=f"{file} holds {match}"):
            open_data(spec)
    path.write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(DataError, match=f"{file} could not be read"):
        open_data(spec)


def test_the_built_in_names_are_the_official_ones():
    """They are numbered in alphabetical order; every tenth was looked up."""
    assert (len(CLASSES), len(CLASSES_100), len(STL_CLASSES)) == (10, 100, 10)
    for names in (CLASSES, CLASSES_100, STL_CLASSES):
        assert list(names) == sorted(set(names))
    assert CLASSES_100[::10] == (
        "apple", "bowl", "chair", "dolphin", "lamp", "mouse", "plain", "rose", "squirrel", "train",
    )  # fmt: skip


def test_labels_out_of_range_are_named(tmp_path):
    cifar100_files(tmp_path / "cifar")
    content = bytearray((tmp_path / "cifar" / "test.bin").read_bytes())
    content[2 * 3074 + 1] = 100
    (tmp_path / "cifar" / "test.bin").write_bytes(content)
    with pytest.raises(DataError, match=r"Record 2 of the test split .* label 100, .* at 99"):
        cifar100(tmp_path / "cifar")
    stl10_files(tmp_path / "stl")
    for label in (0, 11):
        (tmp_path / "stl" / "test_y.bin").write_bytes(bytes([1, label, 3]))
        with pytest.raises(DataError, match=rf"Label 1 in .*test_y\.bin is {label}"):
            stl10(tmp_path / "stl")
    (tmp_path / "stl" / "test_y.bin").write_bytes(bytes([1, 2]))
    with pytest.raises(DataError, match="3 images and 2 labels"):
        stl10(tmp_path / "stl")


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        ([0, 1, -1, 5], "Sample 2 of made has label -1, but its 4 classes are numbered from 0"),
        ([0, -100, 0, 0], "Sample 1 of made has label -100"),
        ([0, 1, 2, 4], "Sample 3 of made has label 4"),
        ([0.0, 1.0, 1.5, 2.0], "are float64, not integers: sample 2 has 1.5"),
        ([0.0, 1.0, np.nan, 2.0], "not integers: sample 2 has nan"),
        ([0.0, 1.0, 2.0, 3.0], "not integers: sample 0 has 0.0"),
        ([True, False, True, True], "are bool, not integers: sample 0"),
        (["a", "b", "c", "d"], "not integers: sample 0 has a"),
        ([[0, 1, 2, 3]] * 4, r"4 labels, of shape \(4, 4\)"),
    ],
    ids=str,
)
def test_labels_that_are_no_numbers_of_classes_are_refused(labels, match):
    with pytest.raises(DataError, match=match):
        ImageSet("made", noise(4, 3, 2, 2), np.array(labels), tuple("abcd"))


def test_other_integers_become_int64():
    small = ImageSet("made", noise(4, 3, 2, 2), np.array([0, 1, 2, 3], np.uint8), tuple("abcd"))
    preparation = Preparation((3, 2, 2), (0.0,) * 3, (1.0,) * 3)
    [(_, labels)] = small.batches(preparation, batch_size=4)
    assert labels.dtype == torch.int64


def test_generated_images_are_a_function_of_split_and_index():
    whole = generated("train", 700)
    assert np.array_equal(generated("train", 33).images, whole.images[:33])
    assert np.array_equal(open_data("generated:33", "train").labels, whole.labels[:33])
    assert whole.images.shape == (700, 3, 32, 32)
    assert np.bincount(whole.labels).tolist() == [70] * 10
    assert len(np.unique(whole.images.reshape(700, -1), axis=0)) == 700
    assert len(open_data("generated")) == len(open_data("generated", "train")) == 1000


def test_generated_images_never_change():
    """Printed when this was first written."""
    assert generated("train", 4).images[3, :, 10, 10].tolist() == [89, 75, 96]


def test_generated_classes_can_be_told_apart_also_mirrored_and_shifted():
    """The nearest mean spectrum of the training images names nearly every test image."""

    def spectra(images):
        grey = images.astype(float).mean(1)
        grey -= grey.mean((1, 2), keepdims=True)
        return np.log1p(np.abs(np.fft.fft2(grey))).reshape(len(images), -1)

    train, test = open_splits("generated:400")
    means = np.stack([spectra(train.images[train.labels == k]).mean(0) for k in range(10)])
    for images in (test.images, test.images[..., ::-1], np.roll(test.images, (3, 5), (2, 3))):
        distances = np.linalg.norm(spectra(images)[:, None] - means, axis=2)
        assert (distances.argmin(1) == test.labels).mean() > 0.97


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("generated:many", "'many' was given. Write `generated`"),
        ("generated:-3", "'-3' was given"),
        ("generated:0", "0 images were asked for. Give 1 to 1,000,000"),
        ("generated:99999999", "99999999 images were asked for"),
    ],
)
def test_an_impossible_number_of_generated_images_is_refused(spec, match):
    with pytest.raises(DataError, match=match):
        open_data(spec)
