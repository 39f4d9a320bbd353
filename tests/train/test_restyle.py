"""Style transfer as a task: its loss by the reference, its runs resumed to the same bits."""

import json
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from reference import perceptual as reference
from stiffnet.cli.main import main
from stiffnet.data.decode import Middle
from stiffnet.data.images import Preparation
from stiffnet.data.picture import open_picture
from stiffnet.errors import DataError, RecipeError
from stiffnet.network.model_folder import read_folder
from stiffnet.train.build import open_subject
from stiffnet.train.perceptual import open_loss_network
from stiffnet.train.recipe import Recipe
from stiffnet.train.recipes import RECIPES
from stiffnet.train.run import run
from stiffnet.train.tasks import task_of
from train import faults
from train.faults import begin, finish, outcome

SIZE = 8
RECIPE = replace(
    RECIPES["style"].value,
    model="style_bn",
    attention="asr:se",
    data="generated",
    image_size=SIZE,
    batch_size=12,
    schedule="cosine",
    style="flower",
    loss_weights="random",
    style_weight=100.0,
    tv_weight=2.0,
)
PREPARATION = Preparation((3, SIZE, SIZE), (0.0,) * 3, (1.0,) * 3)


@pytest.fixture
def photographs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    Path("photos").mkdir()
    for number in range(9):
        pixels = rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(f"photos/{number}.png")
    open_picture("flower").resize((60, 40)).save("style.png")
    return tmp_path


def test_the_loss_is_the_reference_s():
    chance = torch.Generator().manual_seed(0)
    photographs, made = torch.rand(2, 2, 3, SIZE, SIZE, generator=chance, dtype=torch.float64)
    task = task_of(RECIPE)
    task.open(PREPARATION)
    judged = task.judge(lambda given: made, (photographs, None), training=False)
    eye = open_loss_network("random")
    weights = {name: v.double().numpy() for name, v in eye.features.state_dict().items()}
    side = 427  # of the middle that is shown
    flower = open_picture("flower").resize(
        (SIZE, SIZE), Image.Resampling.BILINEAR, box=((640 - side) / 2, 0, (640 + side) / 2, side)
    )
    style = np.asarray(flower).transpose(2, 0, 1) / 255
    pairs = zip(photographs.numpy(), made.numpy(), strict=True)
    found = [reference.parts(weights, photograph, picture, style) for photograph, picture in pairs]
    factors = {"content": 1.0, "style": 100.0, "tv": 2.0}
    for name, factor in factors.items():
        expected = factor * sum(each[name] for each in found)
        assert judged.more[name].item() == pytest.approx(expected, rel=1e-5)  # the style: float32
    assert judged.samples == 2
    total = sum(part.item() for part in judged.more.values())
    assert judged.loss.item() == pytest.approx(total, rel=1e-12)


def test_the_photograph_itself_costs_no_content_and_the_style_picture_no_style():
    task = task_of(RECIPE)
    task.open(PREPARATION)
    picture = PREPARATION(Middle(PREPARATION)(open_picture("flower"), 0)[None])
    judged = task.judge(lambda given: given, (picture, None), training=True)
    assert judged.more["content"].item() == 0.0
    assert judged.more["style"].item() == pytest.approx(0.0, abs=1e-9)
    noise = task.judge(torch.rand_like, (picture, None), training=True)
    assert noise.more["content"] > 0.1
    assert noise.more["style"] > 0.1


def test_a_run_that_is_killed_ends_with_the_same_bits(tmp_path):
    calm = finish(RECIPE, tmp_path / "calm")
    expected = outcome(tmp_path / "calm")
    dying = partial(faults.at_file, "state.json", 5, faults.die)  # in the second epoch
    life = begin(RECIPE, tmp_path / "killed", "--save-every", 1, fault=dying)
    assert life.end() == -9, life.said
    finish(RECIPE, tmp_path / "killed", "--save-every", 1)
    assert outcome(tmp_path / "killed") == expected
    rows = expected["log"]
    assert [key for key in rows[0] if key.startswith("test_")] == [
        "test_loss", "test_content", "test_style", "test_tv",
    ]  # fmt: skip
    for row in rows:
        parts = row["test_content"] + row["test_style"] + row["test_tv"]
        assert row["test_loss"] == pytest.approx(parts, rel=1e-5)
    best = min(rows, key=lambda row: row["test_loss"])
    assert read_folder(tmp_path / "calm/best").made_by["epochs"] == best["epoch"]
    assert "Test loss after the last epoch" in calm.said
    assert "stiffnet restyle" in calm.said


COMMAND = [
    "train", "style:bn+asr", "--data", "photos", "--style", "style.png", "--loss-weights",
    "random", "--set", "image_size=16", "--set", "epochs=1", "--out", "run",
]  # fmt: skip


def changed(**options):
    command = [*COMMAND]
    for option, value in options.items():
        command[command.index(f"--{option.replace('_', '-')}") + 1] = value
    return command


def test_the_command_trains_on_a_folder_of_photographs(photographs, capsys):
    assert main(changed(data="./photos")) == 0
    shown = capsys.readouterr().out
    row = json.loads(Path("run/log.jsonl").read_text())
    assert f"test loss {row['test_loss']:.4g}, content {row['test_content']:.4g}, style " in shown
    assert "Use it:      stiffnet restyle run PICTURE... --out DIR" in shown
    assert "stiffnet measure run/final --data photos:photos" in shown
    assert row["step"] == 2  # one photograph of nine is held out, so eight in batches of four
    folder = read_folder("run/final")
    assert (folder.name, folder.options["attention"]) == ("style_bn", "asr:se")
    assert folder.options["num_classes"] == 3
    assert main(["measure", "run/final", "--data", "photos:photos", "--out", "seen"]) == 0
    learnt = ["train", "run/final", *changed(data="./photos", out="further")[2:]]
    assert main([*learnt, "--recipe", "style"]) == 0  # another style, from a trained network


@pytest.mark.parametrize(
    ("file", "words"), [("style.png", "style picture"), ("eye.safetensors", "file of loss weights")]
)
def test_a_run_goes_on_with_the_files_that_it_began_with(file, words, photographs, monkeypatch):
    monkeypatch.setattr("stiffnet.train.tasks.restyle.open_loss_network", tiny)
    Path("eye.safetensors").write_text("1")
    recipe = replace(
        RECIPE, epochs=3, data="./photos", style="style.png", loss_weights="eye.safetensors"
    )
    with pytest.raises(Exception, match="which is kept in"):
        run(recipe, "run", audience=faults.Stopper(1))
    before = Path(file).read_bytes()
    open_picture("china").resize((60, 40)).save(file, "PNG")
    with pytest.raises(DataError, match=f"began with other data: the {words} is now another file"):
        run(recipe, "run", resume=True)
    Path("moved").mkdir()
    for name in ("style.png", "eye.safetensors"):
        Path(name).rename(Path("moved", name))
    Path("moved", file).write_bytes(before)
    moved = replace(recipe, style="moved/style.png", loss_weights="moved/eye.safetensors")
    assert run(moved, "run", resume=True).history[-1]["epoch"] == 3


def tiny(spec):
    return open_loss_network("random")


def said(capsys):
    text = capsys.readouterr().err
    assert len(text.splitlines()) <= 2
    return text


BAD = {
    "no such picture": (
        {"style": "none.png"}, 3, r"none.png is not an image that can be read: it is gone",
    ),
    "a text as a picture": ({"style": "words.png"}, 3, r"words.png .* no known image format"),
    "small style": (
        {"style": "small.png"}, 3,
        r"style picture small.png has 15×40 pixels, and the crops have 16×16. Give a larger",
    ),
    "another network": ({"loss_weights": "other.pth"}, 2, r"other.pth is not of VGG16: it lacks"),
    "no loss weights there": ({"loss_weights": "none.pth"}, 6, r"none.pth"),
    "no pictures": ({"data": "./empty"}, 3, r"empty holds no pictures. Put .png"),
    "one picture": ({"data": "./one"}, 3, r"one holds a single picture, and one has to be held"),
    "no folder": ({"data": "./none"}, 3, r"none is not a folder. Give the one that holds the phot"),
    "a bad photograph": ({"data": "./bad"}, 3, r"bad/b.png is not an image that can be read"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(case, photographs, capsys):
    options, code, words = BAD[case]
    Path("words.png").write_text("no picture")
    open_picture("flower").resize((15, 40)).save("small.png")
    torch.save(torch.nn.Linear(2, 2).state_dict(), "other.pth")
    for name, files in (("empty", ()), ("one", "a"), ("bad", "abc")):
        Path(name).mkdir()
        for file in files:
            shutil.copy(f"photos/{ord(file) % 9}.png", f"{name}/{file}.png")
    Path("bad/b.png").write_text("no picture")
    assert main(changed(**{"data": "./photos", **options})) == code
    assert re.search(words, said(capsys))
    if case != "a bad photograph":  # which is met on the way
        assert {file.name for file in Path("run").glob("*")} <= {"run.lock"}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["style:xn"], r"no network for style transfer called 'style:xn'. Did you mean 'style:in'"),
        (["style:in", "--data", "tiles"], r"`style` is empty, .* `--style PICTURE`"),
        (["style:in", "--style", "flower"], r"`loss_weights` is empty.* `--loss-weights FILE`"),
        (["style:bn+asr", "--attention", "se"], r"`attention` is given twice"),
        (["resnet20_cifar", "--style", "flower"], r"`style` is flower, but `task` is 'classify'"),
        (
            ["resnet20_cifar", *COMMAND[2:], "--recipe", "style"],
            r"resnet20_cifar does not make colour pictures.*Train `style:in`",
        ),
        (
            ["style_in", "--data", "generated:20", "--recipe", "smoke", "--out", "run"],
            r"style_in does not tell classes apart",
        ),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_one_sentence(command, words, photographs, capsys):
    Path("photos").rename("pictures")
    command = ["./pictures" if each == "photos" else each for each in command]
    assert main(["train", *command]) == 2
    assert re.search(words, said(capsys))
    assert {file.name for file in Path("run").glob("*")} <= {"run.lock"}


def test_the_recipe_is_that_of_johnson_and_uses_nothing_that_others_do_not():
    recipe = RECIPES["style"].value
    assert (recipe.optimizer, recipe.learning_rate, recipe.weight_decay) == ("adamw", 1e-3, 0.0)
    assert (recipe.batch_size, recipe.epochs, recipe.schedule) == (4, 2, "constant")
    with pytest.raises(RecipeError, match="`style` is empty"):
        task_of(recipe)
    with pytest.raises(RecipeError, match=r"`tv_weight` is 2.0, but `task` is 'classify'"):
        task_of(Recipe(tv_weight=2.0))


def test_a_file_of_weights_is_one_whatever_the_picture_is_called():
    both = replace(RECIPE, style="flower", loss_weights="flower")
    assert task_of(both).files() == {"file of loss weights": Path("flower")}
    assert set(task_of(replace(both, style="flower.png")).files()) == {
        "style picture",
        "file of loss weights",
    }
    assert task_of(replace(both, loss_weights="random")).files() == {}


def test_pictures_in_a_format_that_is_not_read_are_named_once(photographs):
    Path("photos/moving.gif").write_bytes(b"")
    recipe = replace(RECIPE, data="./photos")
    *_, notes = open_subject(recipe, task_of(recipe))
    [note] = [each for each in notes if "left out" in each]
    assert "moving.gif" in note
