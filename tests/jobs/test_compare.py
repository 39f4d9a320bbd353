"""The job that compares: networks of all kinds on the same images, each prepared in its own way."""

import itertools

import pytest
import torch

from stiffnet.cli.main import main
from stiffnet.errors import NonFiniteError, RecipeError, StorageError
from stiffnet.jobs.compare import compare, each_of, names_of
from stiffnet.jobs.measure import measure
from stiffnet.network.create import create_model
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


def test_no_two_networks_are_called_the_same():
    """Not even where the name of a folder ends as a number of ours does: the first one was lost."""
    for models in itertools.product(["a", "a (2)", "a (3)"], repeat=4):
        names = names_of(models, [None] * 4)
        assert len(set(names)) == 4
        assert all(name.startswith(model) for name, model in zip(names, models, strict=True))


def test_state_dicts_of_one_checkpoint_are_compared(tmp_path):
    both = {
        key: create_model("resnet20_cifar", num_classes=4, seed=seed).state_dict()
        for seed, key in enumerate(("state_dict", "state_dict_ema"))
    }
    torch.save(both, tmp_path / "both.pth")
    found = compare(
        ["resnet20_cifar"] * 2, **SMALL, out="out", weights=[tmp_path / "both.pth"],
        weights_key=["none", "state_dict_ema"],
    ).comparison  # fmt: skip
    for seed, network in enumerate(found.networks):
        report = measure("resnet20_cifar", **SMALL, seed=seed, num_classes=4, out=f"m{seed}").report
        assert network.nsi == pytest.approx(report.summary.nsi_mean.tolist(), rel=RTOL["float64"])
    with pytest.raises(RecipeError, match="`--weights-key` is given without weights"):
        compare(["resnet20_cifar"] * 2, **SMALL, weights_key=["model"])


def test_a_network_of_text_and_one_without_numbers_are_named(tmp_path):
    with pytest.raises(RecipeError, match="hf:bert reads text, and networks are compared on im"):
        compare(["resnet20_cifar", "hf:bert"], **SMALL)
    state = create_model("resnet20_cifar", num_classes=4).state_dict()
    state["layer1.0.bn1.weight"][0] = float("nan")
    torch.save(state, tmp_path / "nan.pth")
    with pytest.raises(NonFiniteError, match=r"^resnet20_cifar \(2\) has no finite values here"):
        compare(["resnet20_cifar"] * 2, **SMALL, weights=["none", tmp_path / "nan.pth"])


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
