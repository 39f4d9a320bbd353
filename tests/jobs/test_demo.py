"""The demo on a few generated images: what it trains and writes, and what it leaves alone."""

import os
import signal
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

from report import demo_cases
from stiffnet.cli.main import main
from stiffnet.data import open_splits
from stiffnet.errors import FoldError, RecipeError
from stiffnet.jobs import demo
from stiffnet.jobs.demo_speed import rates
from stiffnet.jobs.report import report as page_of
from stiffnet.jobs.watching import Watcher
from stiffnet.network.create import create_model
from stiffnet.network.open import open_model
from stiffnet.results.demo import DemoReport
from stiffnet.train.run import Audience
from stiffnet.train.run_folder import RunFolder
from stiffnet.train.stopping import Stopped
from tolerances import RTOL

TINY = {"model": "resnet20_cifar", "epochs": 1, "batch_size": 16, "image_size": 8}
DATA = "generated:32"


class Listening(Watcher):
    """Remembers notes; stops the demo in the first step of a network, if it is told which."""

    def __init__(self, stop_at=None):
        self.notes, self.trained, self.stop_at = [], [], stop_at

    def note(self, text):
        self.notes.append(text)

    @contextmanager
    def training(self, recipe):
        watcher = self

        class Follower(Audience):
            def step(self, images, tally):
                if not watcher.trained or watcher.trained[-1] != recipe.attention:
                    watcher.trained.append(recipe.attention)
                if len(watcher.trained) == watcher.stop_at:
                    os.kill(os.getpid(), signal.SIGINT)

        yield Follower()


def run(out, **options):
    return demo.demo(out, **{"data": DATA, "settings": TINY, **options})


@pytest.fixture(scope="module")
def small():
    """Few passes and images, for all tests here."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"ROUNDS": 6, "TIMED": 4, "TESTED": 20, "SEEN": 1}.items():
            patch.setattr(demo, name, value)
        patch.setattr(demo, "NETWORKS", {"plain": "none", "ASR(SE)": "asr:se"})
        patch.setattr("stiffnet.report.page.get_plotlyjs", lambda: "window.Plotly = {};")
        yield


@pytest.fixture(scope="module")
def made(small, tmp_path_factory):
    watcher = Listening()
    found = run(tmp_path_factory.mktemp("demo") / "made", watcher=watcher)
    return found, watcher


def weights(folder):
    return open_model(folder).model.state_dict()


def right(loaded, test):
    """Share of some test images that a network gets right, without anything of the demo's."""
    with torch.no_grad():
        hits = [
            (loaded.model(images).argmax(1) == labels)
            for images, labels in test.batches(loaded.preparation, batch_size=7, limit=20)
        ]
    return float(torch.cat(hits).double().mean())


def test_everything_is_trained_measured_and_written(made):
    found, watcher = made
    assert watcher.trained == list(demo.NETWORKS.values())
    assert [path.name for path in found.files] == list(demo.FILES)
    assert DemoReport.load(found.files[0]).to_json() == found.report.to_json()
    assert "How stiff a network is" in found.files[1].read_text()
    assert [form.name for form in found.report.forms] == [*demo.NETWORKS, "folded", "fused"]
    assert [len(form.ratios) for form in found.report.forms] == [0] + [6] * 3
    assert watcher.notes[0].startswith("2 networks are trained on 32 images (1 epochs)")
    assert " on this machine." in watcher.notes[0]


def test_every_form_is_run_and_counted_on_its_own(made):
    found, _ = made
    _, test = open_splits(DATA)
    opened = {name: open_model(folder.final) for name, folder in found.runs.items()}
    opened["folded"] = open_model(found.folded)
    for name, loaded in opened.items():
        form = found.report.form(name)
        assert form.accuracy == right(loaded, test)
        assert form.parameters == sum(p.numel() for p in loaded.model.parameters())
    errors = [form.scaled_error for form in found.report.forms]
    assert errors[:2] == [None] * 2
    assert all(0 <= error < RTOL["batch32"] for error in errors[2:])
    for network in found.report.networks:
        assert network.after.accuracy == found.report.form(network.name).accuracy


def test_the_folded_network_is_the_plain_one_with_other_weights(made):
    found, _ = made
    folded = open_model(found.folded)
    assert (folded.form, folded.made_by["folded_by"]) == ("folded", "stiffnet demo")
    plain = open_model(found.runs["plain"].final).model
    plain.load_state_dict(folded.model.state_dict(), strict=True)
    gated = open_model(found.runs["ASR(SE)"].final)
    images = torch.rand(5, *gated.preparation.input_size)
    with torch.no_grad():
        expected = gated.model(images)
        assert torch.allclose(plain(images), expected, rtol=0, atol=1e-5 * expected.abs().max())


def test_before_is_where_training_begins(small):
    """The networks before training are those that the seed gives, each time."""
    recipes = {name: demo._recipe(a, DATA, TINY, 0) for name, a in demo.NETWORKS.items()}
    starts, _ = demo._starts(recipes, Watcher())
    other, _ = demo._starts(recipes, Watcher())
    for name in recipes:
        state, again = starts[name].model.state_dict(), other[name].model.state_dict()
        assert all(torch.equal(state[key], again[key]) for key in state)
    by_hand = create_model(
        "resnet20_cifar", num_classes=10, attention="asr:se", seed=0
    ).state_dict()
    same = {
        k for k, v in starts["ASR(SE)"].model.state_dict().items() if torch.equal(v, by_hand[k])
    }
    assert same == set(by_hand)


def test_the_report_of_its_folder_shows_the_demo_alone(made, tmp_path):
    found, _ = made
    shown = page_of([found.files[0].parent], out=tmp_path / "page.html")
    assert [each.KIND for each in shown.results] == ["demo"]


def test_a_stopped_demo_continues_and_comes_to_the_same(made, tmp_path):
    whole, _ = made
    with pytest.raises(Stopped, match=r"The demo was stopped.* the same command continues there"):
        run(tmp_path / "demo", watcher=Listening(stop_at=2))
    assert not (tmp_path / "demo" / "demo.json").exists()
    first = RunFolder(tmp_path / "demo" / "plain").owner
    watcher = Listening()
    found = run(tmp_path / "demo", watcher=watcher)
    assert watcher.trained == list(demo.NETWORKS.values())[1:]  # what was finished stays
    assert found.runs["plain"].owner == first
    for name, folder in found.runs.items():
        one, other = weights(folder.final), weights(whole.runs[name].final)
        assert all(torch.equal(one[key], other[key]) for key in one), name
    for one, other in zip(found.report.networks, whole.report.networks, strict=True):
        assert one.after.tns == other.after.tns
        assert np.array_equal(one.before.nsi, other.before.nsi)
    again = Listening()
    run(tmp_path / "demo", watcher=again)  # a finished one gives way
    assert again.trained == list(demo.NETWORKS.values())
    assert RunFolder(tmp_path / "demo" / "plain").owner != first


def test_a_demo_of_other_data_or_settings_stays(made):
    found, _ = made
    folder = found.files[0].parent
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    for other in ({"data": "generated:40"}, {"settings": TINY | {"epochs": 2}}):
        with pytest.raises(RecipeError, match=r"plain holds a run with other data or settings"):
            run(folder, **other)
    after = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    assert before == after


def test_somebodys_folded_folder_stays(tmp_path, capsys):
    (tmp_path / "demo" / "folded").mkdir(parents=True)
    (tmp_path / "demo" / "folded" / "thesis.tex").write_text("years")
    assert main(["demo"]) == FoldError.exit_code
    assert "demo/folded contains something other" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["folded"]


def test_somebodys_folder_among_the_later_runs_is_seen_before_anything_is_trained(tmp_path, capsys):
    (tmp_path / "demo" / "asr-se" / "final").mkdir(parents=True)
    assert main(["demo"]) == RecipeError.exit_code
    error = capsys.readouterr().err
    assert "demo/asr-se contains final, which no run of this version wrote" in error
    assert len(error.splitlines()) == 1
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["asr-se"]


@pytest.mark.parametrize("name", demo.FILES)
def test_somebodys_file_stays(tmp_path, capsys, name):
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / name).write_text("years")
    assert main(["demo"]) == 6
    assert f"demo/{name} is there and was not written by this program" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "demo").iterdir()] == [name]
    assert (tmp_path / "demo" / name).read_text() == "years"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--data", "nothing"], "nothing"),
        (["--data", "cifar10:missing"], "missing"),
        (["--set", "epochs"], "has no value"),
        (["--set", "epochz=3"], "epochz"),
        (["--set", "seed=3"], "`seed` cannot be set like this. Use `--seed`."),
        (["--set", "attention=se"], "The demo has its own; leave it out."),
    ],
)
def test_what_cannot_be_used_is_a_sentence_and_writes_nothing(tmp_path, capsys, options, said):
    assert main(["demo", *options]) in (2, 3, 6)
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
    assert not (tmp_path / "demo").exists()


def test_the_stiffest_step_with_a_small_state_is_looked_at(monkeypatch):
    report = demo_cases.report().networks[0].after
    ranked = list(report.stiffest_steps(len(report.steps))["step"])
    assert demo._stiff_step(report).name == ranked[0]
    steps = tuple(
        replace(s, shape=(9, 9, 9) if s.name == ranked[0] else (8,)) for s in report.steps
    )
    monkeypatch.setattr(demo, "STATE", 100)
    assert demo._stiff_step(replace(report, steps=steps)).name == ranked[1]
    monkeypatch.setattr(demo, "STATE", 1)
    smallest = tuple(replace(s, shape=(4,) if s.name == ranked[2] else (5,)) for s in report.steps)
    assert demo._stiff_step(replace(report, steps=smallest)).name == ranked[2]


def test_a_network_that_works_three_times_as_long_is_at_a_third_of_the_speed():
    class Busy(torch.nn.Module):
        def __init__(self, times):
            super().__init__()
            self.layer, self.times = torch.nn.Linear(400, 400), times

        def forward(self, x):
            for _ in range(self.times):
                self.layer(x)
            return x

    images = torch.rand(64, 400)
    rate, found = rates(Busy(20), {"slow": Busy(60), "same": Busy(20)}, images, rounds=15)
    assert rate > 0
    assert set(found) == {"slow", "same"}
    assert all(len(ratios) == 15 for ratios in found.values())
    assert 0.15 < np.median(found["slow"]) < 0.6 < np.median(found["same"]) < 1.7
