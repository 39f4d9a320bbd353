"""The command line as a user meets it: what it prints, writes, refuses, and its exit codes."""

import json
import os
import signal
import subprocess
import sys

import pytest
import torch
import torchvision
from PIL import Image

from stiffnet.cli.main import main
from stiffnet.data.folder import image_folder
from stiffnet.data.images import Preparation
from stiffnet.network.create import create_model
from stiffnet.network.model_folder import write_folder
from stiffnet.network.open import open_model
from stiffnet.network.pretrained import preparation_of
from stiffnet.results.demo import DemoReport
from stiffnet.results.stiffness import StiffnessReport


@pytest.fixture
def folder(tmp_path):
    """A small model folder of ours, for 8-pixel grey digits."""
    return write_folder(
        tmp_path / "model",
        create_model("resnet20_cifar", num_classes=10, in_chans=1, seed=0),
        name="resnet20_cifar",
        options={"num_classes": 10, "in_chans": 1},
        classes=[str(digit) for digit in range(10)],
        preparation=Preparation((1, 8, 8), (0.3,), (0.4,)),
        made_by={"epochs": 0},
    )


def test_measure_prints_a_table_and_writes_json_and_a_page(folder, tmp_path, capsys):
    assert main(["measure", str(folder), "--data", "digits", "--limit", "30", "--out", "out"]) == 0
    shown = capsys.readouterr().out
    assert "layer3.2" in shown
    assert "TNS" in shown
    report = StiffnessReport.load(tmp_path / "out" / "report.json")
    assert report.samples == 30
    assert report.accuracy is not None
    assert report.facts["data"] == "digits"
    page = (tmp_path / "out" / "report.html").read_text()
    assert "layer3.2" in page
    assert sorted(os.listdir(tmp_path / "out")) == ["report.html", "report.json"]


def test_the_batch_size_on_the_command_line_does_not_matter(folder, tmp_path):
    for size in ("3", "30"):
        command = ["measure", str(folder), "--data", "digits", "--limit", "30"]
        assert main([*command, "--batch-size", size, "--out", size]) == 0
    a, b = (StiffnessReport.load(tmp_path / size / "report.json") for size in ("3", "30"))
    assert a.tns == pytest.approx(b.tns, rel=1e-5)


def test_a_folder_of_images_is_measured(folder, tmp_path, capsys):
    for name in ("cat", "dog"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(2):
            picture = Image.effect_noise((20, 30), 40 + number)
            picture.save(tmp_path / "pictures" / name / f"{number}.png")
    command = ["measure", "resnet20_cifar", "--data", "pictures", "--out", "out"]
    assert main(command) == 0
    assert "initialised with seed 0" in capsys.readouterr().err
    assert StiffnessReport.load("out/report.json").classes == ("cat", "dog")
    (tmp_path / "pictures" / "dog" / "1.png").write_bytes(b"no picture")
    assert main(command) == 3
    assert "1.png" in capsys.readouterr().err


def test_labels_that_are_not_the_networks_classes_are_not_judged(tmp_path, capsys):
    arguments = ["--data", "digits", "--limit", "6", "--num-classes", "7", "--out", "out"]
    assert main(["measure", "resnet20_cifar", *arguments]) == 0
    assert "loss and accuracy are left out" in capsys.readouterr().err
    assert StiffnessReport.load("out/report.json").accuracy is None


def pictures(folder, names, size=(20, 30)):
    """Write one noisy picture for each name, a class folder of its own, and return their paths."""
    for number, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        picture = Image.effect_noise(size, 20 + 30 * number).convert("RGB")
        picture.save(folder / name / "0.png")
    return folder


def answering(model, classifier, folder, answers, preparation):
    """Change a network's classifier so that it gives the folder's images the given answers."""
    images = torch.cat([x for x, _ in image_folder(folder).batches(preparation, batch_size=1)])
    seen = []
    handle = classifier.register_forward_hook(lambda module, args, out: seen.append(args[0]))
    with torch.no_grad():
        model.eval()(images)
        handle.remove()
        classifier.weight.zero_()
        classifier.bias.fill_(-1)
        classifier.bias[answers] = 0
        classifier.weight[answers] = torch.linalg.pinv(seen[0].double()).T.float()
        assert model(images).argmax(dim=1).tolist() == answers


IMAGENET = {"n01484850": 2, "n02012849_crane": 134, "n04146614": 779}


@pytest.fixture
def mobilenet(tmp_path):
    """Weights of torchvision's MobileNetV2, which has no `num_classes`, that know three images."""
    model = torchvision.models.mobilenet_v2()
    folder = pictures(tmp_path / "pictures", IMAGENET, size=(80, 60))
    preparation = preparation_of(model, "torchvision:mobilenet_v2")
    answering(model, model.classifier[1], folder, list(IMAGENET.values()), preparation)
    torch.save(model.state_dict(), "mobilenet.pth")
    return ["measure", "torchvision:mobilenet_v2", "--weights", "mobilenet.pth", "--data"]


def accuracy(out):
    return StiffnessReport.load(f"{out}/report.json").accuracy


def test_imagenets_folders_are_matched_by_name_and_otherwise_there_is_no_accuracy(
    mobilenet, tmp_path, capsys
):
    whole = [*mobilenet, "pictures", "--num-classes", "1000"]
    assert main([*whole, "--out", "a"]) == 0
    said = capsys.readouterr().err
    assert accuracy("a") == 1.0
    assert "taken for ImageNet's in their usual order" in " ".join(said.split())
    assert main([*mobilenet, "pictures", "--classes", "imagenet", "--out", "b"]) == 0
    assert accuracy("b") == 1.0
    assert StiffnessReport.load("b/report.json").kept.label.tolist() == list(IMAGENET.values())
    for name, other in zip(IMAGENET, "zyx", strict=True):  # words that ImageNet does not have
        (tmp_path / "pictures" / name).rename(tmp_path / "pictures" / other)
    assert main([*whole, "--out", "c"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert accuracy("c") is None
    assert "left out: nothing says what the network's 1,000 outputs stand for" in said


def test_classes_from_a_file_are_the_outputs_in_order(tmp_path, capsys):
    names = ["cat", "dog", "emu", "fox"]
    folder = pictures(tmp_path / "pictures", ["dog", "fox"])
    model = create_model("resnet20_cifar", num_classes=4, seed=0)
    answering(model, model.fc, folder, [1, 3], preparation_of(model, "resnet20_cifar"))
    torch.save(model.state_dict(), "w.pth")
    (tmp_path / "names.txt").write_text("\n".join(names))
    command = ["measure", "resnet20_cifar", "--weights", "w.pth", "--data", "pictures"]
    assert main([*command, "--classes", "names.txt", "--out", "a"]) == 0
    assert accuracy("a") == 1.0
    assert StiffnessReport.load("a/report.json").classes == tuple(names)
    assert main([*command, "--num-classes", "4", "--out", "b"]) == 0
    assert accuracy("b") is None
    assert main([*command, "--num-classes", "4", "--classes", "data", "--out", "c"]) == 3
    assert "names 2 classes, and the network has 4 outputs" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_a_folders_own_classes_are_found_whatever_their_order(tmp_path):
    names = sorted(map(str, range(12)))  # "10" before "2", as folders are sorted
    data = pictures(tmp_path / "pictures", ["2", "7"])  # 10 and 11 have no images here
    model = create_model("resnet20_cifar", num_classes=12, seed=0)
    preparation = preparation_of(model, "resnet20_cifar")
    answering(model, model.fc, data, [names.index("2"), names.index("7")], preparation)
    write_folder(
        tmp_path / "model", model, name="resnet20_cifar", options={"num_classes": 12},
        classes=names, preparation=preparation, made_by={"epochs": 1},
    )  # fmt: skip
    assert main(["measure", "model", "--data", "pictures", "--out", "out"]) == 0
    assert accuracy("out") == 1.0


def test_weights_are_taken_from_a_file(tmp_path):
    source = create_model("resnet20_cifar", num_classes=10, seed=3)
    torch.save({"module." + k: v for k, v in source.state_dict().items()}, "w.pth")
    arguments = ["--data", "digits", "--limit", "6", "--out"]
    assert main(["measure", "resnet20_cifar", "--weights", "w.pth", *arguments, "a"]) == 0
    assert main(["measure", "resnet20_cifar", "--seed", "3", *arguments, "b"]) == 0
    a, b = (StiffnessReport.load(f"{name}/report.json") for name in "ab")
    assert a.tns == b.tns


BAD = {
    "an unknown model": (["resnet5o", "--data", "digits"], 2, "Did you mean 'resnet50'"),
    "no residual steps": (["vgg11", "--data", "digits", "--limit", "2"], 2, "no residual steps"),
    "an unknown data set": (["resnet18", "--data", "cifar"], 2, "Did you mean 'cifar10'"),
    "no folder for it": (["resnet18", "--data", "cifar10"], 3, "cifar10:DIR"),
    "a folder that is not there": (["resnet18", "--data", "./none"], 3, "none"),
    "an empty folder": (["resnet18", "--data", "./empty"], 3, "empty"),
    "weights that are not there": (
        ["resnet18", "--data", "digits", "--weights", "none.pth"], 6, "none.pth",
    ),
    "weights of another network": (
        ["resnet18", "--data", "digits", "--weights", "other.pth"], 2, "conv1.weight",
    ),
    "weights that run code": (
        ["resnet18", "--data", "digits", "--weights", "evil.pth"], 4, "evil.pth",
    ),
    "weights that are text": (
        ["resnet18", "--data", "digits", "--weights", "text.pth"], 5, "text.pth",
    ),
    "no such device": (["resnet18", "--data", "digits", "--device", "cuda"], 2, "no cuda device"),
    "a misspelt option": (["resnet18", "--dta", "digits"], 2, "--dta"),
    "no data": (["resnet18"], 2, "--data"),
}  # fmt: skip


class Canary:
    def __reduce__(self):
        return os.system, ("touch canary",)


@pytest.mark.parametrize(("arguments", "status", "words"), BAD.values(), ids=BAD)
def test_bad_input_is_one_sentence_and_a_status(tmp_path, capsys, arguments, status, words):
    if "cuda" in arguments and torch.cuda.is_available():
        pytest.skip("this machine has one")
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.pth").write_text("hello")
    torch.save(Canary(), "evil.pth")
    torch.save({"conv1.weight": torch.zeros(1)}, "other.pth")
    before = sorted(os.listdir())
    assert main(["measure", *arguments]) == status
    said = capsys.readouterr()
    assert words in said.err
    assert said.out == ""
    assert "Traceback" not in said.err
    assert sorted(os.listdir()) == before, "nothing is half written, and no canary"


def test_a_place_that_cannot_be_written_is_named(folder, tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    arguments = ["--data", "digits", "--limit", "3", "--out", "file"]
    assert main(["measure", str(folder), *arguments]) == 6
    assert "could not be written" in capsys.readouterr().err


def test_a_report_of_somebody_else_stays(folder, tmp_path, capsys):
    command = ["measure", str(folder), "--data", "digits", "--limit", "3", "--out", "out"]
    for name in ("report.json", "report.html"):
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / name).write_text("years of work")
        assert main(command) == 6
        assert f"out/{name} is there and was not written by this program" in capsys.readouterr().err
        assert (tmp_path / "out" / name).read_text() == "years of work"
        (tmp_path / "out" / name).unlink()
    for _ in range(2):  # one of ours gives way
        assert main(command) == 0
    assert sorted(os.listdir(tmp_path / "out")) == ["report.html", "report.json"]


def test_lists(capsys):
    assert main(["list", "data"]) == 0
    assert "digits" in capsys.readouterr().out
    assert main(["list", "models", "*resnet164_cifar"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert {"resnet164_cifar", "preresnet164_cifar"} <= set(names)
    assert all(name.endswith("resnet164_cifar") for name in names)
    assert main(["list", "models", "nothing*"]) == 2
    assert main(["list", "wine"]) == 2


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_amid_the_images_ends_it_and_leaves_the_old_files(tmp_path, number, status):
    pictures(tmp_path / "pictures", ["cat", "dog", "emu"])
    command = ["measure", "resnet20_cifar", "--data", "pictures", "--batch-size", "1"]
    assert main([*command, "--out", "out"]) == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert len(before) == 2
    with subprocess.Popen(
        [sys.executable, "-c", DAWDLING, *command, "--seed", "1", "--out", "out"],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        said = []
        for line in process.stderr:
            said.append(line)
            if line == "amid\n":  # it waits behind the second of three images
                break
        process.send_signal(number)
        said.append(process.communicate(timeout=60)[1])
    assert process.returncode == status
    assert "amid\n" in said
    assert "Traceback" not in "".join(said)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


DAWDLING = """
import contextlib, sys, time
from stiffnet.cli.main import main
from stiffnet.cli.terminal import Terminal

@contextlib.contextmanager
def dawdling(self, what, total):
    seen = []
    def advance(amount):
        seen.append(amount)
        if sum(seen) == 2:
            print("amid", file=sys.stderr, flush=True)
            time.sleep(100)
    yield advance

Terminal.progress = dawdling
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_the_demo_tells_its_story(tmp_path, capsys):
    assert main(["demo", "--out", "demo"]) == 0
    said = capsys.readouterr().out
    assert "demo/report.html" in said.splitlines()[-1]
    assert "stiffnet measure demo/folded --data digits:test" in said
    found = DemoReport.load("demo/demo.json")
    assert [form.name for form in found.forms] == [
        "plain", "SE", "StepNet", "ASR(SE)", "folded", "fused",
    ]  # fmt: skip
    for network in found.networks:
        assert network.after.accuracy > 0.9 > network.before.accuracy
    assert found.fold.scaled_error < 1e-5
    for name, folder in (("train", "demo/asr-se/final"), ("folded", "demo/folded")):
        command = ["measure", folder, "--data", "digits", "--limit", "200", "--out", name]
        assert main(command) == 0
        assert json.loads((tmp_path / folder / "MANIFEST.json").read_text())["form"] == name
    trained, folded = (StiffnessReport.load(f"{name}/report.json") for name in ("train", "folded"))
    assert folded.facts["form"] == "folded"
    assert folded.accuracy == trained.accuracy
    page = (tmp_path / "demo" / "report.html").read_text()
    assert 'id="demo-folding"' in page
    for name in ("demo/asr-se/final", "demo/folded"):
        parameters = sum(p.numel() for p in open_model(tmp_path / name).model.parameters())
        assert f">{parameters:,}</td>" in page
