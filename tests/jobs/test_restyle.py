"""`stiffnet restyle`: pictures of any kind, networks before and after folding, and mistakes."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import stiffnet
from stiffnet.cli.main import main
from stiffnet.data.picture import open_picture
from stiffnet.errors import RecipeError, StorageError
from stiffnet.jobs.fold import fold
from stiffnet.jobs.restyle import restyle, restyled
from stiffnet.network.model_folder import write_folder
from stiffnet.network.open import open_model

SAME = 1e-5  # of pixels from 0 to 1: what is promised of a folded network


def written(name, attention=None):
    """Write a network whose gates and norms are not as they began."""
    options = {"num_classes": 3, "attention": attention}
    model = stiffnet.create_model(name, **options)
    chance = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=chance) * parameter.std()
    model.last.weight.data *= 50  # so that pictures have some contrast
    for key, value in model.named_buffers():
        if key.endswith("running_var"):
            value.uniform_(0.5, 2.0, generator=chance)
        elif key.endswith("running_mean"):
            value.normal_(0.0, 0.3, generator=chance)
    preparation = replace(open_model(name).preparation, input_size=(3, 64, 64))  # proofs are quick
    write_folder(
        "network", model, name=name, options=options, classes=(), preparation=preparation,
        made_by={"seed": 0},
    )  # fmt: skip
    return Path("network")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def pixels_of(file):
    with Image.open(file) as opened:
        return np.asarray(opened)


def test_a_folded_network_is_the_plain_one_and_makes_the_same_pictures():
    folder = written("style_bn", "asr:se")
    made = fold(folder, out="folded")
    assert len(made.result.report.folded) == 5
    trained, folded = open_model(folder), open_model("folded")
    assert (folded.name, folded.options["attention"]) == ("style_bn", None)
    plain = stiffnet.create_model("style_bn", num_classes=3)
    plain.load_state_dict(folded.model.state_dict(), strict=True)
    for size in ((64, 64), (37, 50)):
        pictures = torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            one, other, bare = (m.eval()(pictures) for m in (trained.model, folded.model, plain))
        assert one.std() > 0.01
        assert (one - other).abs().max() <= SAME
        assert torch.equal(other, bare)


def test_each_picture_keeps_its_size_whatever_it_is():
    written("style_in")
    flower = open_picture("flower").resize((40, 27))
    flower.save("colour.png")
    flower.convert("L").save("grey.png")
    flower.convert("RGBA").save("alpha.png")
    flower.convert("CMYK").save("print.jpg")
    Image.fromarray(np.asarray(flower.convert("L")).astype(np.uint16) << 8).save("deep.png")
    turned = Image.Exif()
    turned[0x0112] = 6  # the camera was held on its side
    flower.save("turned.jpg", exif=turned)
    names = ["colour.png", "grey.png", "alpha.png", "print.jpg", "deep.png", "turned.jpg"]
    files = restyle("network", names, "out")
    shown = {file.stem: pixels_of(file) for file in files}
    assert shown.pop("turned").shape == (40, 27, 3)
    assert {each.shape for each in shown.values()} == {(27, 40, 3)}
    assert np.array_equal(shown["colour"], shown["alpha"])
    assert not np.array_equal(shown["colour"], shown["grey"])
    assert np.array_equal(shown["grey"], shown["deep"])


def test_pixels_are_those_that_the_network_gives():
    network = open_model(written("style_in")).model
    picture = open_picture("china").resize((24, 20))
    pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1)[None] / 255
    with torch.no_grad():
        expected = (255 * network(pixels)[0]).round().byte().permute(1, 2, 0).numpy()
    assert np.array_equal(np.asarray(restyled(network, picture)), expected)


def test_only_pictures_that_were_made_here_are_replaced():
    written("style_in")
    small = open_picture("flower").resize((16, 12))
    small.save("a.png")
    [first] = restyle("network", ["a.png"], "out")
    before = first.read_bytes()
    assert [file.read_bytes() for file in restyle("network", ["a.png"], "out")] == [before]
    small.save("out/b.png")
    small.save("b.jpg")
    with pytest.raises(StorageError, match=r"out/b.png is there and was not written by this"):
        restyle("network", ["b.jpg"], "out")
    with pytest.raises(RecipeError, match=r"a.png is one of the pictures"):
        restyle("network", ["a.png"], ".")
    small.save("a.jpg")
    with pytest.raises(RecipeError, match=r"a.png and a.jpg would both become other/a.png"):
        restyle("network", ["a.png", "a.jpg"], "other")


@pytest.mark.parametrize(
    ("network", "picture", "code", "words"),
    [
        ("network", "none.png", 3, r"none.png is not an image that can be read: it is gone"),
        ("network", "network", 3, r"network .* it is a folder"),
        ("network", "words.png", 3, r"words.png .* it has no known image format"),
        ("network", "tiny.png", 3, r"tiny.png has 4×9 pixels, and .* needs 5 on each side"),
        ("resnet20_cifar", "flower", 2, r"resnet20_cifar does not make pictures of pictures"),
        ("nothing", "flower", 2, r"nothing"),
    ],
)
def test_a_mistake_is_one_sentence(network, picture, code, words, capsys):
    written("style_in")
    Path("words.png").write_text("no picture")
    open_picture("flower").resize((4, 9)).save("tiny.png")
    assert main(["restyle", network, picture, "--out", "out"]) == code
    said = capsys.readouterr().err
    assert re.search(words, said)
    assert len(said.splitlines()) <= 2
    assert not list(Path("out").glob("*"))
