"""A name, a run and a model folder are one thing to every job; anything else is a sentence."""

import shlex

import pytest
import torch

from stiffnet.data.images import Preparation
from stiffnet.errors import CheckpointError, StorageError, UnknownNameError
from stiffnet.jobs.subject import as_argument, facts_of, subject_of
from stiffnet.network.classes import known_classes
from stiffnet.network.create import create_model
from stiffnet.network.loaded import remarks_on
from stiffnet.network.model_folder import write_folder
from stiffnet.network.open import open_model


def write(path, seed=0):
    return write_folder(
        path,
        create_model("resnet20_cifar", num_classes=2, seed=seed),
        name="resnet20_cifar",
        options={"num_classes": 2},
        classes=["cat", "dog"],
        preparation=Preparation((3, 8, 8), (0.3,) * 3, (0.4,) * 3),
        made_by={"epochs": 0},
    )


def weights(model):
    return torch.cat([value.flatten().double() for value in model.state_dict().values()])


def test_a_name_a_run_and_a_model_folder_are_opened_alike(tmp_path):
    folder = write(tmp_path / "run" / "final")
    run = subject_of(tmp_path / "run")
    assert (run.folder, run.run.path) == (folder, tmp_path / "run")
    assert (subject_of(folder).folder, subject_of(folder).run) == (folder, None)
    assert subject_of("resnet20_cifar").named
    assert not run.named
    opened = [
        run.open(),
        subject_of(str(folder)).open(),
        subject_of("resnet20_cifar").open(guess=2),
    ]
    for loaded in opened:
        assert loaded.name == "resnet20_cifar"
        assert torch.equal(weights(loaded.model), weights(opened[0].model))


def test_a_name_wins_over_a_folder_and_a_path_is_the_folder(tmp_path):
    folder = write(tmp_path / "resnet18")
    assert subject_of("resnet18").named
    assert subject_of("./resnet18").folder.samefile(folder)
    assert subject_of(as_argument(folder.relative_to(tmp_path))).folder.samefile(folder)


def test_the_number_of_outputs_is_guessed_only_where_nothing_says_it(tmp_path):
    folder = write(tmp_path / "model")
    assert subject_of(folder).open(guess=7).model.fc.out_features == 2
    named = subject_of("resnet20_cifar")
    assert named.open(guess=7).model.fc.out_features == 7
    assert named.open(guess=7, num_classes=3).model.fc.out_features == 3


def test_the_command_that_finishes_a_run_can_be_copied(tmp_path):
    run = tmp_path / "it's my run"
    run.mkdir()
    (run / "recipe.toml").write_text("epochs = 2\n")
    with pytest.raises(CheckpointError, match="is not finished") as caught:
        subject_of(run)
    command = str(caught.value).split("`")[1]
    assert shlex.split(command) == ["stiffnet", "train", "--resume", "--out", str(run)]


def test_what_holds_no_network_is_a_sentence(tmp_path):
    (tmp_path / "photographs").mkdir()
    with pytest.raises(CheckpointError, match="photographs is neither a run nor a model folder"):
        subject_of(tmp_path / "photographs")
    with pytest.raises(UnknownNameError, match="Did you mean 'resnet50'"):
        subject_of("resnet5o").open()
    with pytest.raises(StorageError, match="nowhere is not a folder"):
        subject_of(tmp_path / "nowhere").open()


def test_other_weights_in_a_folder_are_not_taken_for_its_classes(tmp_path):
    folder = write(tmp_path / "model")
    torch.save(create_model("resnet20_cifar", num_classes=2, seed=1).state_dict(), "other.pth")
    assert known_classes(subject_of(folder).open()).names == ("cat", "dog")
    assert known_classes(subject_of(folder).open(weights="other.pth")) is None


def test_random_weights_are_remarked_on():
    loaded = subject_of("resnet20_cifar").open(seed=3)
    [remark] = remarks_on(loaded)
    assert "resnet20_cifar is used as initialised with seed 3" in remark
    assert facts_of(loaded, data="digits", command="")["weights"] == "random, seed 3"


def test_names_that_were_changed_are_remarked_on_and_kept_with_the_result(tmp_path):
    state = create_model("resnet20_cifar", num_classes=4).state_dict()
    torch.save(state, tmp_path / "ours.pth")
    theirs = {name.replace("shortcut", "downsample"): value for name, value in state.items()}
    torch.save(theirs, tmp_path / "theirs.pth")
    said = {}
    for name in ("ours", "theirs"):
        loaded = open_model("resnet20_cifar", weights=tmp_path / f"{name}.pth", num_classes=4)
        facts = facts_of(loaded, data="digits", command="typed")
        assert (facts["data"], facts["command"]) == ("digits", "typed")
        said[facts["weights"]] = list(remarks_on(loaded))
    assert said == {
        "ours.pth": [],
        "theirs.pth, renamed downsample to shortcut": [
            "names in the weights file were changed to fit: downsample to shortcut."
        ],
    }


def test_a_folder_takes_no_other_attention(tmp_path):
    """It would be left out without a word."""
    folder = write(tmp_path / "model")
    with pytest.raises(CheckpointError, match="`--attention se` cannot be attached to it here"):
        subject_of(folder).open(attention="se")
