"""Laws of every job: it prints nothing, and what it writes is what its command writes."""

import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock, call

import pytest
import torch

from stiffnet.cli.main import main
from stiffnet.errors import FoldError, RecipeError, StorageError
from stiffnet.jobs import result_files
from stiffnet.jobs.compare import compare
from stiffnet.jobs.fold import fold
from stiffnet.jobs.measure import measure
from stiffnet.jobs.stripes import stripes
from stiffnet.jobs.train import train
from stiffnet.jobs.watching import Watcher
from stiffnet.network.create import create_model
from stiffnet.network.open import open_model
from stiffnet.train.run import Audience
from tolerances import RTOL

MODEL, DATA = "resnet20_cifar", "generated:40"
SETTINGS = {"epochs": 1, "image_size": 8, "batch_size": 20}
COMMAND = "stiffnet typed"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A tiny run with ordinary attention behind constant one: both jobs have something to do."""
    out = tmp_path_factory.mktemp("runs") / "run"
    train(MODEL, DATA, settings=SETTINGS, attention="asr:se+se", out=out, command=COMMAND)
    return out


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    return "run"


def content(folder):
    """Every file of a folder by its name; whatever a run does not repeat is left out."""
    files = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    return {str(name): path.read_bytes() for name, path in files.items()}


class Everything(Watcher):
    """Writes down all that a watcher hears."""

    def __init__(self):
        self.notes, self.results, self.works, self.rows = [], [], {}, []

    def note(self, text):
        self.notes.append(text)

    def found(self, result):
        self.results.append(result)

    @contextmanager
    def progress(self, what, total):
        self.works[what] = [total]
        yield self.works[what].append

    @contextmanager
    def training(self, recipe):
        rows = self.rows

        class Rows(Audience):
            def epoch(self, row):
                rows.append(row)

        yield Rows()


JOBS = {
    "measure": (
        lambda out, **known: measure("run", DATA, limit=9, out=out, **known),
        ["measure", "run", "--data", DATA, "--limit", "9"],
    ),
    "stripes": (
        lambda out, **known: stripes("run", DATA, limit=9, out=out, **known),
        ["stripes", "run", "--data", DATA, "--limit", "9"],
    ),
    "fold": (
        lambda out, **known: fold("run", out=out, **known),
        ["fold", "run"],
    ),
}


@pytest.mark.parametrize(("job", "command"), JOBS.values(), ids=JOBS)
def test_a_job_prints_nothing_and_writes_what_its_command_writes(
    run, tmp_path, monkeypatch, capfd, job, command
):
    arguments = [*command, "--out", "out"]
    watcher = Everything()
    job("out", command="stiffnet " + " ".join(arguments), watcher=watcher)
    assert capfd.readouterr() == ("", "")
    assert watcher.notes == []
    assert all(sum(done) == total for total, *done in watcher.works.values())
    ours = content(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    monkeypatch.setattr(sys, "argv", ["stiffnet", *arguments])
    assert main(arguments) == 0
    assert content(tmp_path / "out") == ours
    assert len(ours) > 1


def test_a_training_prints_nothing_and_writes_what_its_command_writes(
    trained, tmp_path, monkeypatch, capfd
):
    command = ["train", MODEL, "--data", DATA, "--attention", "asr:se+se", "--out", "run"]
    for field, value in SETTINGS.items():
        command += ["--set", f"{field}={value}"]
    monkeypatch.setattr(sys, "argv", COMMAND.split())
    assert main(command) == 0
    for part in ("recipe.toml", "final/weights.safetensors", "final/recipe.toml"):
        assert (tmp_path / "run" / part).read_bytes() == (trained / part).read_bytes(), part
    assert open_model("run/final").made_by == open_model(trained / "final").made_by
    capfd.readouterr()
    watcher, tracker = Everything(), Mock()
    monkeypatch.setattr("stiffnet.jobs.train.open_tracker", lambda *args: tracker)
    again = train(MODEL, DATA, settings=SETTINGS, attention="asr:se+se", out="run", again=True,
                  trackers=["tensorboard"], watcher=watcher)  # fmt: skip
    assert capfd.readouterr() == ("", "")
    assert watcher.rows == again.result.history
    assert tracker.mock_calls == [*map(call.log, watcher.rows), call.close()]
    done = train(resume=True, out="run", watcher=watcher)
    assert done.recipe == again.recipe
    assert done.result.history == again.result.history
    assert any("is finished" in note for note in watcher.notes)


def test_a_result_is_heard_of_before_its_files_are_written(run, tmp_path, monkeypatch):
    def full(*args):
        raise StorageError("The disk is full.")

    monkeypatch.setattr(result_files, "write", full)
    watcher = Everything()
    with pytest.raises(StorageError, match="The disk is full"):
        measure("run", DATA, limit=4, watcher=watcher)
    [report] = watcher.results
    assert report.samples == 4
    assert not (tmp_path / "stiffness").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has such a device")
@pytest.mark.parametrize("job", [measure, stripes])
def test_the_device_is_settled_before_anything_is_loaded(job, tmp_path):
    with pytest.raises(RecipeError, match="no cuda device"):
        job("no such network", "no such data", device="cuda")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "attention", "kind"),
    [
        ("resnet20_cifar", "asr:se", "asr:se"),
        pytest.param("repvgg_a0", None, "branches", marks=pytest.mark.slow),
    ],
)
def test_a_network_is_folded_by_its_name_and_its_weights(tmp_path, name, attention, kind):
    model = create_model(name, num_classes=4, attention=attention, seed=5).eval()
    torch.save(model.state_dict(), "weights.pth")
    made = fold(name, weights="weights.pth", num_classes=4, attention=attention)
    assert made.folder == Path("folded", name)
    assert {item.kind for item in made.result.report.folded} == {kind}
    deployed = open_model(made.folder)
    assert (deployed.form, deployed.made_by["source"]) == ("folded", name)
    shape = deployed.preparation.input_size
    images = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected, found = model(images), deployed.model(images)
    assert float((found - expected).abs().max() / expected.abs().max()) < RTOL["batch32"]


def test_settings_and_arguments_do_not_say_the_same_thing_twice():
    with pytest.raises(RecipeError, match="`seed` is given twice"):
        train(MODEL, DATA, seed=1, settings={"seed": 2})


def test_a_folded_network_is_not_measured_without_the_word_that_its_index_changed(run):
    """A network and its fold compute the same and have another NSI: a comparison must say why."""
    [changed] = fold(run, out="folded").result.report.notes
    watcher = Everything()
    found = compare([run, "folded"], DATA, limit=8, out="compared", watcher=watcher).comparison
    assert found.pairs[0].tns.differs
    assert watcher.notes[-1] == f"folded was folded. {changed}"
    assert [network.notes[-1:] for network in found.networks] == [(), (watcher.notes[-1],)]
    assert measure("folded", DATA, limit=8, out="measured").report.notes == (watcher.notes[-1],)


def test_results_on_parts_of_two_runs_do_not_replace_each_other(trained, tmp_path):
    """`stiffnet train` advises to measure its `final`, and every run has one."""
    written = set()
    for name in ("one", "two"):
        shutil.copytree(trained, tmp_path / name)
        for part in ("", "final", "best"):
            written |= set(measure(Path(name, part), DATA, limit=2).files)
    folders = {path.parent.name for path in written}
    assert folders == {"one", "one-final", "one-best", "two", "two-final", "two-best"}


def test_a_fold_has_a_page_that_says_where_it_comes_from(run, tmp_path):
    made = fold(run, html="fold.html", out="folded", command=COMMAND)
    page = (tmp_path / "fold.html").read_text()
    assert {item.kind for item in made.result.report.folded} == {"asr:se"}
    for text in (MODEL, COMMAND, "8 random images and 16 real ones", "layer1.0.step_size"):
        assert text in page, text
    (tmp_path / "thesis.html").write_text("years")
    with pytest.raises(StorageError, match=r"thesis\.html is there and was not written by this"):
        fold(run, html="thesis.html", out="other")
    assert (tmp_path / "thesis.html").read_text() == "years"
    assert not (tmp_path / "other").exists()


def test_no_two_files_of_a_fold_are_one(run):
    with pytest.raises(FoldError, match=r"`--program` and `--html` would both be a\.bin"):
        fold(run, program="a.bin", html="a.bin", out="folded")


def test_training_does_not_import_what_draws(tmp_path):
    """In a process of its own, because this one has drawn already."""
    code = (
        "import sys; from stiffnet.jobs.train import train\n"
        f"train({MODEL!r}, {DATA!r}, settings={SETTINGS!r}, out='run')\n"
        "print(sorted(name for name in sys.modules if name in ('plotly', 'stiffnet.report')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
