"""`stiffnet gradcam` as a user meets it: a network and images in, mean maps and a page out."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from stiffnet.cli.main import main
from stiffnet.data import open_data
from stiffnet.network.create import create_model
from stiffnet.network.open import open_model
from stiffnet.observe.gradcam import gradcam
from stiffnet.results.gradcam import GradcamReport
from tolerances import RTOL

TINY = ["--set", "epochs=1", "--set", "image_size=16", "--set", "batch_size=20"]
FEW = ["--data", "generated:40", "--images", "8"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A tiny run with attention."""
    out = tmp_path_factory.mktemp("runs") / "run"
    command = ["train", "resnet20_cifar", "--data", "generated:40", "--attention", "se", *TINY]
    assert main([*command, "--out", str(out)]) == 0
    return out


def test_a_run_gives_a_table_a_file_and_a_page(run, capsys):
    assert main(["gradcam", str(run), *FEW]) == 0
    said = capsys.readouterr()
    assert "in the central quarter" in " ".join(said.out.split())
    assert said.out.endswith("Written: gradcam/run/gradcam.json and gradcam/run/gradcam.html\n")
    assert said.err == ""
    report = GradcamReport.load("gradcam/run/gradcam.json")
    assert (report.samples, report.layer, report.target) == (8, "layer3", "predicted")
    assert report.facts["shift"] == "4 of 16 pixels to the right, around the edge"
    page = Path("gradcam/run/gradcam.html").read_text()
    assert "Average Grad-CAM of resnet20_cifar on generated-test" in page
    assert sorted(os.listdir("gradcam/run")) == ["gradcam.html", "gradcam.json"]
    assert main(["report", "gradcam"]) == 0
    assert "1 Grad-CAM report" in capsys.readouterr().out


def test_the_command_gives_what_the_library_gives_in_any_batches(run):
    options = ["--batch-size", "3", "--target", "label", "--layer", "layer2", "--out", "out"]
    assert main(["gradcam", str(run), *FEW, *options]) == 0
    report = GradcamReport.load("out/gradcam.json")
    loaded, images = open_model(run / "final"), open_data("generated:40")
    batches = images.batches(loaded.preparation, batch_size=8, limit=8)
    other = gradcam(loaded.model, batches, target="label", layer="layer2", classes=images.classes)
    for mine, yours in zip(report.views, other.views, strict=True):
        np.testing.assert_allclose(mine.mean, yours.mean, rtol=RTOL["batch32"], atol=1e-5)
    assert report.classes == other.classes == tuple(images.classes)
    assert report.images.explained.tolist() == report.label.tolist()


def test_classes_in_another_order_than_the_runs_are_never_taken_silently(run, capsys):
    classes = open_data("generated:40").classes
    Path("classes.txt").write_text("\n".join(reversed(classes)))
    said = ["--target", "label", "--classes", "classes.txt", "--out", "out"]
    assert main(["gradcam", str(run), *FEW, *said]) == 0
    assert f"has {classes[-1]!r} as output 0" in capsys.readouterr().err


def test_a_weights_file_is_explained():
    torch.manual_seed(0)
    save_file(create_model("resnet20_cifar", num_classes=10).state_dict(), "w.safetensors")
    assert main(["gradcam", "resnet20_cifar", "--weights", "w.safetensors", *FEW]) == 0


def folder(text=None):
    """A folder of class folders with one picture, or a file that is none."""
    os.makedirs("pictures/cat")
    if text is None:
        Image.new("RGB", (40, 40)).save("pictures/cat/a.png")
    else:
        with open("pictures/cat/a.png", "w") as stream:
            stream.write(text)


def no_convolution():
    @timm.models.register_model
    def flat_network(pretrained=False, num_classes=10, **options):
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64, num_classes))
        model.pretrained_cfg = {"input_size": (3, 8, 8), "mean": (0.5,) * 3, "std": (0.5,) * 3}
        return model


BAD = {
    "an unknown model": (None, ["resnet2o_cifar"], 2, "or 'resnet20_cifar'?"),
    "an unknown layer": (None, ["resnet20_cifar", "--layer", "layer7"], 2,
                         "There is no layer called 'layer7'. Did you mean 'layer3'"),
    "no feature map": (None, ["resnet20_cifar", "--layer", "fc"], 2, "is not a map of features"),
    "an unreadable picture": (lambda: folder("no picture"),
                              ["resnet20_cifar", "--data", "./pictures"], 3,
                              "pictures/cat/a.png is not an image that can be read"),
    "no pictures": (lambda: os.makedirs("pictures/cat"),
                    ["resnet20_cifar", "--data", "./pictures"], 3, "pictures holds no images"),
    "zero images": (None, ["resnet20_cifar", "--images", "0"], 2, "0 is out of range. Give 1 or"),
    "no convolution": (no_convolution, ["flat_network"], 2, "Sequential has no feature maps"),
    "labels of others": (folder, ["resnet20_cifar", "--data", "./pictures", "--target", "label",
                                  "--num-classes", "5"], 3,
                         "The evidence for the label cannot be found"),
    "no such target": (None, ["resnet20_cifar", "--target", "truth"], 2, "'truth' is not one of"),
    "unknown data": (None, ["resnet20_cifar", "--data", "cifar11:x"], 2, "Did you mean"),
    "other weights": (lambda: save_file({"x": torch.ones(1)}, "w.safetensors"),
                      ["resnet20_cifar", "--weights", "w.safetensors"], 2, "w.safetensors"),
}  # fmt: skip


@pytest.mark.parametrize(("prepare", "arguments", "status", "words"), BAD.values(), ids=BAD)
def test_a_mistake_is_one_sentence_and_a_status(capsys, prepare, arguments, status, words):
    if prepare is not None:
        prepare()
    data = [] if "--data" in arguments else ["--data", "generated:40"]
    assert main(["gradcam", *arguments, *data]) == status
    said = capsys.readouterr()
    assert words in " ".join(said.err.split())
    usage = ("note:", "Usage", "Try ")
    told = [line for line in said.err.splitlines() if line and not line.startswith(usage)]
    assert len(told) == 1
    assert said.out == ""
    assert not os.path.exists("gradcam")


def test_without_the_library_one_sentence_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pytorch_grad_cam", None)
    assert main(["gradcam", "resnet20_cifar", *FEW]) == 2
    assert "Install it with `pip install 'stiffnet[gradcam]'`" in capsys.readouterr().err
