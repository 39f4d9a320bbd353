"""First differences over epochs, from arrays and from the files of a run."""

import numpy as np
import pytest
import safetensors.torch
import torch

from stiffnet.errors import CorruptFileError, DataError, NonFiniteError, StorageError
from stiffnet.observe.epochs import first_differences, stripes_over_epochs
from tolerances import RTOL

GENERATOR = np.random.default_rng(0)
VALUES = {
    epoch: {"a": GENERATOR.random((5, 3)), "b": GENERATOR.random((5, 2))} for epoch in (1, 2, 4)
}


def test_a_difference_is_the_mean_over_images_of_absolute_changes():
    drift = first_differences(VALUES)
    assert drift.epochs == ((1, 2), (2, 4))
    assert drift.images == 5
    for step in ("a", "b"):
        expected = [
            np.abs(VALUES[later][step] - VALUES[earlier][step]).mean(axis=0)
            for earlier, later in drift.epochs
        ]
        np.testing.assert_allclose(drift.differences[step], expected, rtol=RTOL["float64"])
    frame = drift.to_frame()
    np.testing.assert_allclose(
        frame["difference_mean"],
        [row.mean() for step in ("a", "b") for row in drift.differences[step]],
        rtol=RTOL["float64"],
    )
    assert list(frame["next_epoch"]) == [2, 4, 2, 4]


def test_values_that_stay_do_not_differ():
    drift = first_differences({1: VALUES[1], 2: VALUES[1]})
    assert (drift.means() == 0).all()


def test_what_has_no_value_in_one_epoch_is_left_out_of_its_differences():
    before, after = np.ones((2, 2)), np.zeros((2, 2))
    before[0, 0] = before[:, 1] = np.nan
    found = first_differences({1: {"a": before}, 2: {"a": after}})
    np.testing.assert_array_equal(found.differences["a"], [[1.0, np.nan]])
    np.testing.assert_array_equal(found.means(), [[1.0]])


def written(folder, values):
    folder.mkdir(parents=True)
    for epoch, found in values.items():
        tensors = {step: torch.from_numpy(array).float() for step, array in found.items()}
        safetensors.torch.save_file(tensors, folder / f"epoch-{epoch:04d}.safetensors")


@pytest.mark.parametrize("named", ["run", "run/attention"])
def test_a_run_is_read_from_its_folder(tmp_path, named):
    written(tmp_path / "run" / "attention", VALUES)
    (tmp_path / "run" / "attention" / "notes.txt").write_text("no epoch")
    read, given = stripes_over_epochs(tmp_path / named), first_differences(VALUES)
    assert read.epochs == given.epochs
    np.testing.assert_allclose(read.means(), given.means(), rtol=RTOL["batch32"])


def test_a_folder_without_values_is_refused(tmp_path):
    for place in (tmp_path, tmp_path / "missing"):
        with pytest.raises(StorageError, match=r"holds no attention values.*--attention-values"):
            stripes_over_epochs(place)


def test_a_damaged_file_is_refused(tmp_path):
    written(tmp_path / "attention", VALUES)
    file = tmp_path / "attention" / "epoch-0002.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(CorruptFileError, match=r"epoch-0002\.safetensors is damaged"):
        stripes_over_epochs(tmp_path)


def test_one_epoch_has_no_difference():
    with pytest.raises(DataError, match="values of 1 epoch, and a difference needs two"):
        first_differences({1: VALUES[1]})


@pytest.mark.parametrize(
    "other", [{"a": np.ones((5, 3))}, {"a": np.ones((4, 3)), "b": np.ones((4, 2))}]
)
def test_epochs_of_other_modules_or_images_are_refused(other):
    with pytest.raises(DataError, match="epochs 1 and 2 are not of the same modules"):
        first_differences({1: VALUES[1], 2: other})


@pytest.mark.parametrize("values", [{}, {"a": [1.0]}, {"a": np.ones((0, 2))}])
def test_what_is_no_table_of_values_is_refused(values):
    with pytest.raises(DataError, match=r"a table \(images, channels\)"):
        first_differences({1: values, 2: values})


def test_an_infinite_value_is_named():
    with pytest.raises(NonFiniteError, match="step 'a' is infinite"):
        first_differences({1: {"a": [[np.inf]]}, 2: {"a": [[1.0]]}})
