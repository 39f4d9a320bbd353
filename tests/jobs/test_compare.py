"""The job that compares: networks of all kinds on the same images, each prepared in its own way."""

import pytest

from stiffnet.cli.main import main
from stiffnet.errors import RecipeError, StorageError
from stiffnet.jobs.compare import compare, each_of
from stiffnet.jobs.measure import measure
from stiffnet.results.comparison import Comparison
from tolerances import RTOL

DATA = "generated:24"
SMALL = {"data": DATA, "limit": 12, "batch_size": 8}


def test_networks_of_other_sizes_see_the_same_images(tmp_path):
    """The numbers of each are those of `measure`, at its own size of images."""
    models = ["resnet20_cifar", "test_resnet"]
    compared = compare(models, **SMALL, out="out", command="typed")
    found = compared.comparison
    assert [path.name for path in compared.files] == ["comparison.json", "comparison.html"]
    assert vars(Comparison.load(tmp_path / "out" / "comparison.json")) == vars(found)
    sizes = []
    for network, model in zip(found.networks, models, strict=True):
        report = measure(model, **SMALL, out=f"measured/{model}").report
        means = report.summary.nsi_mean.tolist()
        assert network.nsi == pytest.approx(means, rel=RTOL["float64"])
        assert network.accuracy == report.accuracy
        sizes.append(network.facts["input"].split(",")[0])
    assert found.images == 12
    assert sizes == ["3×32×32", "3×160×160"]
    assert found.pairs[0].matched == ""
    assert found.pairs[0].accuracy is not None
    assert found.facts == {"data": "generated", "command": "typed"} | found.facts


def test_the_command_compares_with_and_without_attention(capsys):
    command = ["compare", "resnet20_cifar", "resnet20_cifar", "--attention", "none", "--attention"]
    assert main([*command, "se", "--data", DATA, "--limit", "6"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "of 9 steps of resnet20_cifar with se differ" in said
    assert "Written: comparison/resnet20_cifar-resnet20_cifar/comparison.json and" in said


def test_one_network_is_not_enough(capsys):
    with pytest.raises(RecipeError, match="two networks or more"):
        compare(["resnet20_cifar"], DATA)
    assert main(["compare", "resnet20_cifar", "--data", DATA]) == 2
    assert "Name another one." in capsys.readouterr().err


def test_an_option_is_given_once_or_for_each():
    models = ["resnet20_cifar", "resnet32_cifar", "resnet44_cifar"]
    assert each_of(models, [], "weights") == [None] * 3
    assert each_of(models, ["pretrained"], "weights") == ["pretrained"] * 3
    assert each_of(models, ["a", "none", ""], "weights") == ["a", None, None]
    with pytest.raises(RecipeError, match="`--weights` is given 2 times for 3 networks"):
        each_of(models, ["a", "b"], "weights")


def test_other_peoples_files_are_not_overwritten(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "comparison.html").write_text("mine")
    with pytest.raises(StorageError):
        compare(["resnet20_cifar"] * 2, **SMALL, out="out")
    assert (tmp_path / "out" / "comparison.html").read_text() == "mine"
