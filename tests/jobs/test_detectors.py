"""A trained detector is measured, looked at and folded as a classifier is."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from data.boxed import write_coco
from stiffnet.data import open_splits
from stiffnet.errors import CheckpointError, DataError, ExportError
from stiffnet.jobs.fold import fold
from stiffnet.jobs.measure import measure
from stiffnet.jobs.spectrum import spectrum
from stiffnet.jobs.stripes import stripes
from stiffnet.network.create import create_model
from stiffnet.network.open import open_model
from stiffnet.train.run import run
from train.test_detect import SMALL


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the folder of a detector with constant attention, and that of its images."""
    root = tmp_path_factory.mktemp("detector")
    data = write_coco(root / "d")
    recipe = replace(SMALL, attention="asr:se", data=f"coco:{data}", train_images=0, epochs=1)
    run(recipe, root / "run")
    return root / "run", data


def test_measuring_says_how_stiff_the_backbone_is_whatever_the_batch(trained, tmp_path):
    run_folder, data = trained
    one, four = (
        measure(run_folder, f"coco:{data}", batch_size=size, out=tmp_path / str(size)).report
        for size in (1, 4)
    )
    assert one.samples == four.samples == 4
    assert all(step.name.startswith("backbone.body.") for step in one.steps)
    assert one.accuracy is None
    both = (report.to_frame()["nsi_mean"].to_numpy() for report in (one, four))
    np.testing.assert_allclose(*both, rtol=1e-5)  # no image is padded to the size of another


def test_a_folded_detector_finds_the_same(trained, tmp_path):
    run_folder, data = trained
    folded = fold(run_folder, out=tmp_path / "folded", limit=3)
    assert folded.result.report.folded
    assert folded.real == 3
    before, after = open_model(run_folder / "final"), open_model(tmp_path / "folded")
    assert after.options["attention"] is None
    plain = create_model(before.name, num_classes=2, image_size=64).state_dict()
    assert plain.keys() == after.model.state_dict().keys()
    assert before.model.state_dict().keys() > plain.keys()
    _, test = open_splits(f"coco:{data}")
    found = 0
    for batch in test.batches(before.preparation, batch_size=2):
        with torch.no_grad():
            mine, theirs = (each.model.eval()(batch["images"]) for each in (before, after))
        for one, other in zip(mine, theirs, strict=True):
            found += len(one["boxes"])
            assert torch.equal(one["labels"], other["labels"])
            torch.testing.assert_close(one["boxes"], other["boxes"], rtol=1e-4, atol=1e-3)
            torch.testing.assert_close(one["scores"], other["scores"], rtol=1e-4, atol=1e-5)
    assert found
    with pytest.raises(ExportError, match="another number of things in each image"):
        fold(run_folder, out=tmp_path / "again", onnx=tmp_path / "x.onnx")


def test_attention_in_a_detector_is_looked_at(tmp_path):
    striped = stripes(SMALL.model, "shapes", attention="se", limit=4, out=tmp_path / "s")
    assert striped.report.to_frame()["step"].str.startswith("backbone.body.").all()


def test_what_does_not_go_together_is_said(trained, tmp_path):
    run_folder, data = trained
    with pytest.raises(DataError, match="are for detectors, and this network is none"):
        measure("resnet18", f"coco:{data}", out=tmp_path / "m")
    with pytest.raises(DataError, match="here images with one label each are needed"):
        spectrum(run_folder, f"coco:{data}", out=tmp_path / "s")
    with pytest.raises(DataError, match="here images with one label each are needed"):
        stripes(SMALL.model, "shapes", attention="se", growth=2, out=tmp_path / "g")
    with pytest.raises(CheckpointError, match="gives no feature maps"):
        measure("fasterrcnn:vit_tiny_patch16_224", f"coco:{data}", out=tmp_path / "v")
