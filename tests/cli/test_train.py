"""`stiffnet train` as a user meets it: a run, its going on, and one sentence for each mistake."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from stiffnet.cli.main import main

TINY = ["--set", "epochs=2", "--set", "image_size=8", "--set", "batch_size=16"]


@pytest.fixture
def pictures(tmp_path):
    """A folder of photographs, train and val, two classes of six pictures each."""
    rng = np.random.default_rng(0)
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            place = tmp_path / "pictures" / split / name
            place.mkdir(parents=True)
            for number in range(6):
                pixels = rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{number}.png")
    return tmp_path / "pictures"


def test_a_run_from_its_command_to_its_network(capsys, tmp_path):
    command = ["train", "resnet20_cifar", "--data", "generated:40", *TINY, "--out", "run"]
    assert main(command) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("epoch 1/2: train loss ")
    assert "Test accuracy after the last epoch" in shown[2]
    assert "chosen on the test set" in shown[2]
    assert "stiffnet measure run/final --data generated:40" in shown[4]
    assert main(["measure", "run/final", "--data", "generated:20", "--out", "seen"]) == 0
    assert main(["train", "--resume", "--out", "run"]) == 0
    assert "is finished" in capsys.readouterr().err
    assert main(command) == 2
    assert "Add `--resume` to go on" in capsys.readouterr().err


def test_the_default_folder_is_named_after_model_and_recipe(tmp_path):
    assert main(["train", "resnet20_cifar", "--data", "generated:20", *TINY]) == 0
    [run] = (tmp_path / "runs").iterdir()
    assert run.name.startswith("resnet20_cifar-")
    assert len(run.name) == len("resnet20_cifar-") + 12


def test_photographs_are_trained_on_by_any_number_of_workers(pictures, tmp_path):
    for workers in ("0", "2"):
        command = ["train", "resnet20_cifar", "--data", str(pictures), *TINY, "--set",
                   "crop=resized", "--workers", workers, "--out", workers]  # fmt: skip
        assert main(command) == 0
    ours, theirs = (
        (tmp_path / workers / "final/weights.safetensors").read_bytes() for workers in ("0", "2")
    )
    assert ours == theirs
    manifest = json.loads((tmp_path / "0/final/MANIFEST.json").read_text())
    assert manifest["classes"] == ["cat", "dog"]


def train(*more):
    return main(["train", "resnet20_cifar", *TINY, "--out", "run", *more])


def test_a_class_that_one_split_lacks_is_named(pictures, capsys):
    shutil.move(pictures / "val" / "dog", pictures / "val" / "wolf")
    assert train("--data", str(pictures)) == 3
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "dog" in said
    assert "wolf" in said


def test_an_empty_class_is_named(pictures, capsys):
    for path in (pictures / "train" / "cat").iterdir():
        path.unlink()
    assert train("--data", str(pictures)) == 3
    assert "cat" in capsys.readouterr().err


def test_a_bad_image_is_named_or_left_out(pictures, capsys):
    (pictures / "train" / "cat" / "3.png").write_bytes(b"<html>")
    assert train("--data", str(pictures)) == 3
    assert "3.png" in capsys.readouterr().err
    shutil.rmtree("run")
    assert train("--data", str(pictures), "--skip-bad-images") == 0
    said = capsys.readouterr().err
    assert "3.png" in said
    assert "1 of 24 images is left out" in said


def test_a_network_of_other_classes_is_refused(capsys, pictures):
    command = ["train", "resnet20_cifar", "--data", "generated:40", *TINY, "--out", "first"]
    assert main(command) == 0
    assert main(["train", "first/final", "--data", str(pictures), *TINY, "--out", "run"]) == 2
    assert "was trained on other classes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "status", "words"),
    [
        (["--set", "epoch=3"], 2, "There is no recipe field called 'epoch'. Did you mean 'epochs'"),
        (["--set", "epochs"], 2, "Write `--set FIELD=VALUE`"),
        (["--set", "learning_rate=fast"], 2, "learning_rate"),
        (["--recipe", "quik"], 2, "Did you mean 'quick'"),
        (["--recipe", "none.toml"], 6, "none.toml"),
        (["--data", "cifar11:x"], 2, "Did you mean"),
        (["--data", "cifar10:nowhere"], 3, "nowhere"),
        (["--data", "generated:0"], 3, "Give 1 to"),
        (["--attention", "sse"], 2, "sse"),
        (["--tracker", "tensorbord", "--data", "generated:20"], 2, "Did you mean 'tensorboard'"),
        (["--device", "cuda"], 2, "no cuda device"),
        (["--set", "batch_noise=true"], 2, "instance norms to replace"),
        (["--resume"], 2, "holds no run to resume"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_sentence_and_a_status(capsys, tmp_path, more, status, words):
    assert train(*([] if "--data" in more else ["--data", "generated:20"]), *more) == status
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "run" / "recipe.toml").exists()  # nothing is in the way of the next try


def test_no_network_is_a_sentence_too(capsys):
    assert main(["train", "--data", "digits"]) == 2
    assert "No network was given" in capsys.readouterr().err


def test_recipes_are_listed(capsys):
    assert main(["list", "recipes", "stepnet*"]) == 0
    assert "StepNet Table 6" in capsys.readouterr().out
