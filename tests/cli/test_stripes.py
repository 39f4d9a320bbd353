"""`stiffnet stripes` as a user meets it: a network with attention in, a page with pictures out."""

import os
import shutil

import numpy as np
import pytest

from stiffnet.cli.main import main
from stiffnet.data import open_data
from stiffnet.network.create import create_model
from stiffnet.network.model_folder import write_folder
from stiffnet.network.open import open_model
from stiffnet.observe.epochs import stripes_over_epochs
from stiffnet.observe.stripes import stripes
from stiffnet.results.stripes import StripeReport
from tolerances import RTOL

TINY = ["--set", "epochs=2", "--set", "image_size=8", "--set", "batch_size=20"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A tiny run with attention, whose values were kept after each of two epochs."""
    out = tmp_path_factory.mktemp("runs") / "run"
    command = ["train", "resnet20_cifar", "--data", "generated:40", "--attention", "se", *TINY]
    assert main([*command, "--attention-values", "6", "--out", str(out)]) == 0
    return out


@pytest.fixture
def run(trained, tmp_path):
    """A copy of it for one test, so that none sees another's files."""
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


def test_a_run_gives_a_table_a_file_and_a_page(run, tmp_path, capsys):
    assert main(["stripes", "run", "--data", "generated:40", "--limit", "9", "--growth", "1"]) == 0
    said = capsys.readouterr()
    assert "layer3.2" in said.out
    assert said.out.endswith("Written: stripes/run/stripes.json and stripes/run/stripes.html\n")
    assert said.err == ""
    report = StripeReport.load("stripes/run/stripes.json")
    assert (report.samples, report.growth.images) == (9, 1)
    assert (report.facts["model"], report.facts["data"]) == ("resnet20_cifar", "generated-test")
    drift = stripes_over_epochs(run)
    assert report.drift.epochs == drift.epochs == ((1, 2),)
    for step, found in drift.differences.items():
        np.testing.assert_array_equal(report.drift.differences[step], found)
    page = (tmp_path / "stripes" / "run" / "stripes.html").read_text()
    assert "Attention in resnet20_cifar on generated-test" in page
    assert 'id="epochs"' in page
    assert 'id="noise"' in page
    assert sorted(os.listdir("stripes/run")) == ["stripes.html", "stripes.json"]


def test_a_model_folder_gives_what_the_library_gives_in_any_batches(run):
    command = ["stripes", "run/final", "--data", "generated:40", "--batch-size", "7"]
    assert main([*command, "--out", "out"]) == 0
    report = StripeReport.load("out/stripes.json")
    assert (report.drift, report.growth) == (None, None)
    loaded, images = open_model("run/final"), open_data("generated:40")
    other = stripes(loaded.model, images.batches(loaded.preparation, batch_size=40))
    for one, two in zip(report.modules, other.modules, strict=True):
        assert one.step == two.step
        np.testing.assert_allclose(one.value_mean, two.value_mean, rtol=RTOL["batch32"])


def test_values_of_a_single_epoch_are_a_note(run, capsys):
    (run / "attention" / "epoch-0002.safetensors").unlink()
    assert main(["stripes", "run", "--data", "generated:9"]) == 0
    assert "is left out: There are values of 1 epoch" in capsys.readouterr().err
    assert StripeReport.load("stripes/run/stripes.json").drift is None


def unfinished(run):
    shutil.rmtree(run / "final")


def damaged(run):
    values = run / "attention" / "epoch-0002.safetensors"
    values.write_bytes(values.read_bytes()[:-1])


def plain(run):
    write(run, None)


def constant(run):
    write(run, "asr:se")


def write(run, attention):
    options = {"num_classes": 10, "attention": attention}
    loaded = open_model(run / "final")
    shutil.rmtree(run)
    write_folder(
        run,
        create_model("resnet20_cifar", **options),
        name="resnet20_cifar",
        options=options,
        classes=loaded.classes,
        preparation=loaded.preparation,
        made_by={},
    )


def nothing(run):
    return None


BAD = {
    "nowhere": (nothing, ["./none"], 6, "none is not a folder"),
    "an unknown model": (nothing, ["resnet5o"], 2, "Did you mean 'resnet50'"),
    "a folder of others": (nothing, ["run/attention"], 2, "neither a run nor a model folder"),
    "an unfinished run": (unfinished, ["run"], 2, "is not finished. Finish it with"),
    "damaged values": (damaged, ["run"], 5, "epoch-0002.safetensors"),
    "no attention": (plain, ["run"], 2, "Nothing is attached to"),
    "constant attention": (constant, ["run"], 2, "its stripes are perfect. Fold it"),
    "one image": (nothing, ["run", "--limit", "1"], 3, "needs two or more"),
    "a file in the way": (nothing, ["run", "--out", "run/log.jsonl"], 6, "could not be written"),
    "unknown data": (nothing, ["run", "--data", "cifar11:x"], 2, "Did you mean"),
}  # fmt: skip


@pytest.mark.parametrize(("prepare", "arguments", "status", "words"), BAD.values(), ids=BAD)
def test_a_mistake_is_one_sentence_and_a_status(run, capsys, prepare, arguments, status, words):
    prepare(run)
    capsys.readouterr()
    data = [] if "--data" in arguments else ["--data", "generated:9"]
    assert main(["stripes", *arguments, *data]) == status
    said = capsys.readouterr()
    assert words in said.err
    assert len(said.err.splitlines()) == 1
    assert said.out == ""
    assert not os.path.exists("stripes")
