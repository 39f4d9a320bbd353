"""`stiffnet train` as a user meets it: a run, its going on, and one sentence for each mistake."""

import json
import os
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stiffnet.cli.main import main
from stiffnet.results.stiffness import StiffnessReport

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
    assert "Add `--resume` to continue" in capsys.readouterr().err


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


@pytest.mark.parametrize("target", ["loop.png", "other.png"])
def test_a_loop_of_links_is_a_sentence(pictures, capsys, target):
    (pictures / "train/cat/loop.png").symlink_to(target)
    (pictures / "train/cat/other.png").symlink_to("loop.png")
    assert train("--data", str(pictures)) == 3
    said = capsys.readouterr().err
    assert "is a link that leads back to itself. Take it away" in said
    assert len(said.splitlines()) == 1


def test_a_bad_image_is_named_or_left_out(pictures, capsys):
    (pictures / "train" / "cat" / "3.png").write_bytes(b"<html>")
    assert train("--data", str(pictures)) == 3
    assert "3.png" in capsys.readouterr().err
    shutil.rmtree("run")
    assert train("--data", str(pictures), "--skip-bad-images") == 0
    said = capsys.readouterr().err
    assert "3.png" in said
    assert "1 of 24 images is left out" in said


def test_leaving_out_bad_images_is_remembered(pictures, capsys):
    (pictures / "train" / "cat" / "3.png").write_bytes(b"<html>")
    assert train("--data", str(pictures), "--skip-bad-images") == 0
    assert "skip_bad_images = true" in Path("run/recipe.toml").read_text()
    assert main(["train", "--resume", "--out", "run"]) == 0
    assert "is finished" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "out"),
    [
        ("pictures", "run"),
        ("folder:pictures", "."),
        ("my own pictures", "my run"),
        ("./digits", "it's"),
        ("cifar10:pictures", "resnet18"),
        ("generated:20", "-run"),
        ("digits", "digits"),  # whose test images are a part of all
    ],
)
def test_the_command_that_is_printed_last_works(pictures, capsys, data, out):
    name = data.removeprefix("folder:")
    if name not in ("generated:20", "pictures", "digits"):
        pictures.rename(name)
    spec = f"folder:{data}" if data.startswith("cifar10") else data
    assert main(["train", "resnet20_cifar", "--data", spec, *TINY, f"--out={out}"]) == 0
    said = capsys.readouterr().out
    [command] = [line for line in said.splitlines() if line.startswith("Measure it:")]
    program, *arguments = shlex.split(command.removeprefix("Measure it:"))
    assert program == "stiffnet"
    assert main([*arguments, "--out", "measured"]) == 0
    accuracy = StiffnessReport.load("measured/report.json").accuracy
    assert f"after the last epoch: {accuracy:.2%}" in said


def test_a_finished_run_whose_data_are_gone_is_still_told(pictures, capsys):
    assert train("--data", str(pictures)) == 0
    shutil.rmtree(pictures)
    assert main(["train", "--resume", "--out", "run"]) == 0
    assert "Test accuracy after the last epoch" in capsys.readouterr().out


def test_nothing_to_resume_is_said_as_it_is(capsys, tmp_path):
    assert main(["train", "--resume", "--out", "nowhere"]) == 2
    assert capsys.readouterr().err.startswith("stiffnet: nowhere holds no run to resume. Give")
    (tmp_path / "empty").mkdir()
    assert main(["train", "--resume", "--out", "empty"]) == 2
    assert capsys.readouterr().err.startswith("stiffnet: empty holds no run to resume. Give")
    assert main(["train", "--resume"]) == 2
    assert "`--resume` needs the folder of the run" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["empty"]
    assert os.listdir(tmp_path / "empty") == []


def test_a_network_of_other_classes_gets_a_new_head_and_a_module(capsys, pictures):
    command = ["train", "resnet20_cifar", "--data", "generated:40", *TINY, "--out", "first"]
    assert main(command) == 0
    small = ["--set", "epochs=1", "--set", "image_size=8"]
    tune = ["--attention", "asr:se", "--recipe", "finetune", "--data", str(pictures), *small]
    assert main(["train", "first/final", *tune, "--out", "run"]) == 0
    assert "first/final has another number of outputs" in capsys.readouterr().err
    assert main(["fold", "run"]) == 0
    weights = ["--weights", "first/final/weights.safetensors"]
    assert main(["train", "resnet20_cifar", *weights, *tune, "--out", "named"]) == 0
    assert "weights.safetensors has another number of outputs" in capsys.readouterr().err
    random = ["train", "resnet20_cifar", *tune, "--set", "weights=", "--out", "random"]
    assert main(random) == 2
    assert "starts with random weights. Give trained ones" in capsys.readouterr().err
    assert main(["train", "first/final", "--weights", "pretrained", *tune, "--out", "no"]) == 2
    assert "has weights of its own" in capsys.readouterr().err


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


def test_images_that_are_there_twice_are_told(tmp_path, monkeypatch, capsys):
    """One test image is trained on, and one training image is in both classes."""
    monkeypatch.chdir(tmp_path)
    for shade, file in enumerate(("train/a/1", "train/b/2", "val/a/3", "val/b/4")):
        path = tmp_path / f"{file}.png"
        path.parent.mkdir(parents=True)
        Image.new("L", (8, 8), shade).save(path)
    shutil.copy(tmp_path / "train/a/1.png", tmp_path / "train/b/5.png")
    shutil.copy(tmp_path / "train/b/2.png", tmp_path / "val/b/6.png")
    few = ["--set", "epochs=1", "--set", "batch_size=3", "--set", "image_size=8"]
    assert main(["train", "resnet20_cifar", *few, "--out", "run", "--data", "."]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "1 of 3 test images are training images too, such as val/b/6.png" in said
    assert "1 image is in more than one class, such as train/a/1.png" in said


def test_data_that_may_not_be_meant_are_told(tmp_path, monkeypatch, capsys):
    """A folder that has the name of a data set, and test images that are the training images."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate("ab"):
        place = tmp_path / "digits" / "train" / name
        place.mkdir(parents=True)
        for shade in range(2):
            Image.new("L", (8, 8), 100 * number + shade).save(place / f"{shade}.png")
    (tmp_path / "digits" / "val").symlink_to(tmp_path / "digits" / "train")
    few = ["--set", "epochs=1", "--set", "batch_size=4", "--set", "image_size=8"]
    asked = ["train", "resnet20_cifar", *few, "--out"]
    assert main([*asked, "own", "--data", "./digits"]) == 0
    said = capsys.readouterr().err
    assert "The test images are the training images" in said
    assert "the data set of this name" not in said
    assert main([*asked, "embedded", "--data", "digits", "--set", "train_images=10"]) == 0
    said = capsys.readouterr().err
    assert "`digits` is the data set of this name, and not the folder" in said
    assert "The test images are" not in said
