"""From a checkpoint file to top-1 and top-5 on labelled images, in one command."""

import argparse

import numpy as np
import pytest
import timm
import torch
from PIL import Image

from stiffnet.errors import CheckpointError
from stiffnet.jobs.measure import measure
from stiffnet.jobs.watching import Watcher
from stiffnet.network.model_names import is_classifier_name, is_model_name
from stiffnet.network.open import open_model
from stiffnet.observe.measure import measure as look

NAME = "test_resnet"  # a small one of timm, with 1,000 outputs
CLASSES = {"Egyptian_cat": 285, "n07920052": 967, "space shuttle": 812}  # names of both kinds


class Notes(Watcher):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def photographs(root, names=tuple(CLASSES)):
    chance = np.random.default_rng(0)
    for name in names:
        (root / name).mkdir(parents=True)
        for number in range(4):
            size = (int(chance.integers(160, 240)), int(chance.integers(160, 240)), 3)
            pixels = chance.integers(0, 256, size, dtype=np.uint8)
            Image.fromarray(pixels).resize((200, 180)).save(root / name / f"{number}.png")
    return root


def network():
    """A timm network whose outputs for one image differ, and depend on the image."""
    torch.manual_seed(0)
    return timm.create_model(NAME).eval()


def expected(root, model):
    """Top-1 and top-5 as timm's own transform and torch's topk have them."""
    transform = timm.data.create_transform(
        **timm.data.resolve_model_data_config(model), is_training=False
    )
    hits = []
    for file in sorted(root.glob("*/*.png")):
        with torch.no_grad(), Image.open(file) as image:
            best = model(transform(image)[None])[0].topk(5).indices.tolist()
        hits.append((best[0] == CLASSES[file.parent.name], CLASSES[file.parent.name] in best))
    return tuple(np.mean(hits, axis=0))


@pytest.mark.parametrize("form", ["plain", "timm", "lightning"])
def test_a_checkpoint_gives_the_accuracy_that_timm_gives(tmp_path, form):
    root, model = photographs(tmp_path / "photos"), network()
    with torch.no_grad():  # one class right, one among the first five, one never
        model.get_classifier().bias[285] += 50
        model.get_classifier().bias[967] += 30
    state = model.state_dict()
    content = {
        "plain": state,
        "timm": {"state_dict": state, "args": argparse.Namespace(a=1)},
        "lightning": {"state_dict": {f"net.{k}": v for k, v in state.items()}},
    }[form]
    torch.save(content, tmp_path / "w.pth")
    report = measure(NAME, root, weights=tmp_path / "w.pth", out=tmp_path / "out").report
    assert (report.accuracy, report.top5) == expected(root, model)
    assert report.accuracy == pytest.approx(1 / 3)
    assert report.top5 >= 2 / 3
    assert "top-5" in (tmp_path / "out" / "report.html").read_text()


def test_folders_that_are_indices_are_taken_for_outputs_if_imagenet_is_named(tmp_path):
    root = photographs(tmp_path / "photos", ("285", "967"))
    model = network()
    with torch.no_grad():
        model.get_classifier().bias[285] += 50
    torch.save(model.state_dict(), tmp_path / "w.pth")
    options = {"weights": tmp_path / "w.pth", "classes": "imagenet", "out": tmp_path / "out"}
    assert measure(NAME, root, **options).report.accuracy == 0.5


def test_a_class_without_images_is_a_note(tmp_path):
    root, watcher = photographs(tmp_path / "photos", ("a", "b")), Notes()
    (root / "c").mkdir()
    (root / "a" / "other.gif").write_bytes(b"")
    report = measure("resnet20_cifar", root, out=tmp_path / "out", watcher=watcher).report
    assert report.classes == ("a", "b", "c")
    assert "1 of 3 classes has no images: c." in watcher.notes
    assert any("1 image is left out" in note and "a/other.gif" in note for note in watcher.notes)


def test_top5_counts_the_five_largest_and_says_nothing_of_fewer_outputs():
    class Fixed(torch.nn.Module):
        """A residual step, and logits that are given."""

        def __init__(self, logits):
            super().__init__()
            self.linear = torch.nn.Linear(logits.shape[1], logits.shape[1])
            self.logits = logits

        def forward(self, x):
            return (x + self.linear(x)) * 0 + self.logits[: len(x)]

    logits = torch.arange(7.0).repeat(7, 1)  # class 6 first, class 0 last
    report = look(Fixed(logits), [(torch.rand(7, 7), torch.arange(7))])
    assert (report.accuracy, report.top5) == (1 / 7, 5 / 7)
    equal = look(Fixed(torch.zeros(7, 7)), [(torch.rand(7, 7), torch.arange(7))])
    assert (equal.accuracy, equal.top5) == (1 / 7, 5 / 7)  # and not all of them
    few = look(Fixed(torch.rand(5, 5)), [(torch.rand(5, 5), torch.arange(5))])
    assert few.top5 is None


def test_detectors_and_segmenters_have_names_and_their_own_preparation():
    for name in ("torchvision:fasterrcnn_resnet50_fpn", "torchvision:lraspp_mobilenet_v3_large"):
        assert is_model_name(name)
        assert not is_classifier_name(name)
    assert is_classifier_name("torchvision:resnet18")
    detector = open_model("torchvision:ssdlite320_mobilenet_v3_large")  # downloads nothing
    assert detector.preparation.input_size == (3, 320, 320)
    assert detector.preparation.mean == (0.0, 0.0, 0.0)  # it normalises by itself
    segmenter = open_model("torchvision:lraspp_mobilenet_v3_large")
    assert segmenter.preparation.input_size == (3, 520, 520)
    assert segmenter.preparation.mean == (0.485, 0.456, 0.406)


def test_a_segmenter_is_measured_without_accuracy(tmp_path):
    root, watcher = photographs(tmp_path / "photos", ("a", "b")), Notes()
    name = "torchvision:lraspp_mobilenet_v3_large"
    found = measure(name, root, limit=2, out=tmp_path / "out", watcher=watcher).report
    assert found.samples == 2
    assert found.accuracy is None
    assert any("no row of logits" in text for text in watcher.notes)


def test_a_key_that_is_not_there_is_refused_before_anything_is_written(tmp_path):
    root = photographs(tmp_path / "photos", ("a",))
    torch.save(network().state_dict(), tmp_path / "w.pth")
    with pytest.raises(CheckpointError, match="nothing under the key 'ema'"):
        measure(NAME, root, weights=tmp_path / "w.pth", weights_key="ema", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
