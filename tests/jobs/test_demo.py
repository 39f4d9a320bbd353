"""The demo on a network that was not trained: what it folds, runs and writes."""

import pytest
import torch

from stiffnet.cli.main import main
from stiffnet.data.digits import digits
from stiffnet.data.images import Preparation
from stiffnet.errors import FoldError
from stiffnet.jobs import demo
from stiffnet.jobs.watching import SILENT
from stiffnet.network.create import create_model
from stiffnet.network.model_folder import write_folder
from stiffnet.network.open import open_model
from tolerances import RTOL

OPTIONS = {"num_classes": 10, "in_chans": 1, "attention": demo.ATTENTION}


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A model folder with constant attention, for 8-pixel grey digits, and few passes."""
    monkeypatch.setattr(demo, "PASSES", 1)
    monkeypatch.setattr(demo, "TIMED", 4)
    folder = write_folder(
        tmp_path / "final",
        create_model(demo.MODEL, seed=0, **OPTIONS),
        name=demo.MODEL,
        options=OPTIONS,
        classes=[str(digit) for digit in range(10)],
        preparation=Preparation((1, 8, 8), (0.3,), (0.4,)),
        made_by={"epochs": 0},
    )
    return open_model(folder)


def right(model, trained, test):
    """Share of the test images that a network gets right, without anything of the demo's."""
    with torch.no_grad():
        hits = [
            (model(images).argmax(1) == labels)
            for images, labels in test.batches(trained.preparation, batch_size=50)
        ]
    return float(torch.cat(hits).double().mean())


def test_every_form_is_run_and_counted_on_its_own(trained, tmp_path):
    test = digits("test")
    after = demo._look(trained.model, trained, test, "random", SILENT)
    made = demo._fold(trained, after, test, tmp_path / "folded", source=tmp_path / "final")
    assert [form.name for form in made.forms] == ["as trained", "folded", "fused"]
    assert (made.tested, made.batch, made.passes) == (len(test), 4, 1)
    deployed = open_model(tmp_path / "folded")
    assert (deployed.form, deployed.made_by["folded_by"]) == ("folded", "stiffnet demo")
    plain = create_model(demo.MODEL, num_classes=10, in_chans=1)
    plain.load_state_dict(deployed.model.state_dict())
    for form, model in zip(made.forms, (trained.model, deployed.model), strict=False):
        assert form.accuracy == right(model, trained, test)
        assert form.parameters == sum(p.numel() for p in model.parameters())
    assert all(form.macs and form.rate > 0 for form in made.forms)
    assert made.forms[0].scaled_error is None
    assert all(0 <= form.scaled_error < RTOL["batch32"] for form in made.forms[1:])


def test_the_accuracy_of_a_form_is_not_that_of_another(trained, tmp_path, monkeypatch):
    """A folded network that was written wrongly is seen to be wrong."""
    test = digits("test")
    after = demo._look(trained.model, trained, test, "random", SILENT)

    write = demo.write_folded

    def write_other(path, model, changes, **kwargs):
        with torch.no_grad():
            next(p for n, p in model.named_parameters() if n.endswith("fc.bias"))[3] += 1e6
        return write(path, model, changes, **kwargs)

    monkeypatch.setattr(demo, "write_folded", write_other)
    made = demo._fold(trained, after, test, tmp_path / "folded", source=tmp_path / "final")
    threes = float((torch.as_tensor(test.labels) == 3).double().mean())
    assert made.forms[1].accuracy == threes != made.forms[0].accuracy


def test_somebodys_folder_stays(tmp_path, capsys):
    (tmp_path / "demo" / "folded").mkdir(parents=True)
    (tmp_path / "demo" / "folded" / "thesis.tex").write_text("years")
    assert main(["demo"]) == FoldError.exit_code
    assert "demo/folded contains something other" in capsys.readouterr().err
    assert not (tmp_path / "demo" / "run").exists()


@pytest.mark.parametrize("name", demo.FILES)
def test_somebodys_file_stays(tmp_path, capsys, name):
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / name).write_text("years")
    assert main(["demo"]) == 6
    assert f"demo/{name} is there and was not written by this program" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "demo").iterdir()] == [name]
    assert (tmp_path / "demo" / name).read_text() == "years"
