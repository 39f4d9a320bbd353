"""Laws of CIFAR-10's binary files, on made-up ones."""

import numpy as np
import pytest

from stiffnet.data import open_data
from stiffnet.data.cifar import PARTS, RECORD, cifar10
from stiffnet.errors import DataError, UnknownNameError


@pytest.fixture
def place(tmp_path):
    """A folder with six files of four records each."""
    generator = np.random.default_rng(0)
    for name in (*PARTS["train"], *PARTS["test"]):
        records = generator.integers(0, 256, (4, RECORD), dtype=np.uint8)
        records[:, 0] %= 10
        (tmp_path / name).write_bytes(records.tobytes())
    return tmp_path


def naive(place, split):
    """Read record by record, as the data set's page describes them."""
    images, labels = [], []
    for name in PARTS[split]:
        content = (place / name).read_bytes()
        while content:
            labels.append(content[0])
            planes = [list(content[1 + 1024 * k : 1 + 1024 * (k + 1)]) for k in range(3)]
            images.append([[plane[32 * y : 32 * y + 32] for y in range(32)] for plane in planes])
            content = content[3073:]
    return np.array(images), labels


@pytest.mark.parametrize("split", ["train", "test"])
def test_records_are_read_as_they_are_described(place, split):
    images, labels = naive(place, split)
    read = cifar10(place, split)
    assert read.name == f"cifar10-{split}"
    assert np.array_equal(read.images, images)
    assert read.labels.tolist() == labels
    assert read.images.dtype == np.uint8


def test_it_opens_by_name_and_from_the_folder_above(place, tmp_path):
    above = tmp_path / "above"
    above.mkdir()
    (above / "cifar-10-batches-bin").symlink_to(place)
    assert len(open_data(f"cifar10:{above}")) == 4
    assert len(open_data(f"cifar10:{place}", "train")) == 20


def test_the_file_is_not_written_to(place):
    read = cifar10(place)
    assert not read.images.flags.writeable


def test_a_missing_file_is_named(place):
    (place / "data_batch_3.bin").unlink()
    with pytest.raises(DataError, match=r"data_batch_3\.bin is not there"):
        cifar10(place, "train")


@pytest.mark.parametrize("size", [0, 1, RECORD - 1, 4 * RECORD - 1, 4 * RECORD + 1])
def test_a_file_of_another_length_is_refused(place, size):
    (place / "test_batch.bin").write_bytes(bytes(size))
    with pytest.raises(DataError, match=rf"test_batch\.bin has {size:,} bytes"):
        cifar10(place)


def test_a_label_above_nine_is_named(place):
    content = bytearray((place / "test_batch.bin").read_bytes())
    content[2 * RECORD] = 10
    (place / "test_batch.bin").write_bytes(content)
    with pytest.raises(DataError, match=r"Record 2 of the test split .* has label 10"):
        cifar10(place)


def test_an_unknown_split_is_refused(place):
    with pytest.raises(UnknownNameError, match=r"'tran'\. Did you mean 'train'"):
        cifar10(place, "tran")
