"""What the version before the house was rebuilt wrote: runs, folders and reports still open."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import stiffnet
from earlier.tiny import register
from stiffnet.cli.main import main
from stiffnet.data import open_data
from stiffnet.network.open import open_model

HERE = Path(__file__).parent
register()
CLOSE = 1e-4  # of the largest: training sums in float32, in another order on another machine


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Copies that may be written to."""
    shutil.copytree(HERE, tmp_path / "earlier", ignore=shutil.ignore_patterns("*.py", "__*"))
    return tmp_path / "earlier"


def test_a_report_is_read_and_measured_again(files: Path) -> None:
    kept = stiffnet.StiffnessReport.load(files / "measured" / "report.json")
    loaded = open_model(files / "finished" / "final")
    images = open_data("digits").batches(loaded.preparation, batch_size=5, limit=12)
    now = stiffnet.measure(loaded.model, images)
    assert kept.samples == now.samples == 12
    np.testing.assert_allclose(now.nsi, kept.nsi, rtol=1e-4)
    assert now.tns == pytest.approx(kept.tns, rel=1e-4)
    assert list(kept.to_frame().columns) == list(now.to_frame().columns)
    assert kept.accuracy is not None
    assert kept.facts["model"] == "tiny_residual"


def test_stripes_are_read_and_seen_again(files: Path) -> None:
    kept = stiffnet.StripeReport.load(files / "striped" / "stripes.json")
    loaded = open_model(files / "finished" / "final")
    images = open_data("digits").batches(loaded.preparation, batch_size=3, limit=8)
    now = stiffnet.stripes(loaded.model, images)
    for column in ("score", "cost", "value_mean"):
        np.testing.assert_allclose(
            now.to_frame()[column], kept.to_frame()[column], rtol=1e-3, atol=1e-6
        )
    assert kept.drift is not None
    assert kept.growth is not None
    again = stiffnet.stripes_over_epochs(files / "finished")
    np.testing.assert_array_equal(again.means(), kept.drift.means())


def test_a_folded_network_is_the_trained_one(files: Path) -> None:
    trained, folded = open_model(files / "constant" / "final"), open_model(files / "folded")
    assert folded.form == "folded"
    images = torch.randn(4, *trained.preparation.input_size)
    with torch.no_grad():
        torch.testing.assert_close(folded.model(images), trained.model(images))
    assert main(["fold", str(files / "constant"), "--out", str(files / "anew")]) == 0
    anew = load_file(files / "anew" / "weights.safetensors")
    for name, value in load_file(files / "folded" / "weights.safetensors").items():
        torch.testing.assert_close(anew[name], value)


def test_a_stopped_run_goes_on(files: Path) -> None:
    run = files / "stopped"
    assert main(["train", "--resume", "--out", str(run), "--device", "cpu"]) == 0
    there, wanted = (load_file(files / name / "final" / "weights.safetensors")
                     for name in ("stopped", "finished"))  # fmt: skip
    assert there.keys() == wanted.keys()
    for name, value in wanted.items():
        scale = float(value.abs().max()) or 1.0
        assert float((there[name] - value).abs().max()) <= CLOSE * scale, name


def test_a_finished_run_stays_finished(files: Path) -> None:
    before = (files / "finished" / "final" / "weights.safetensors").read_bytes()
    assert main(["train", "--resume", "--out", str(files / "finished")]) == 0
    assert (files / "finished" / "final" / "weights.safetensors").read_bytes() == before
