"""Kinds of rows on small trained networks: what they return is what other ways of asking return."""

import numpy as np
import pytest
import torch

from jobs.test_study import Here
from stiffnet.data import open_splits
from stiffnet.errors import StepError
from stiffnet.jobs import demo_speed, rows_looks
from stiffnet.jobs.row_run import Work
from stiffnet.jobs.rows_looks import correlations, surface, values
from stiffnet.jobs.rows_speed import FORMS, form, forms, parameters
from stiffnet.jobs.rows_train import train
from stiffnet.jobs.study import run_studies
from stiffnet.jobs.study_rows import ALONE, settled
from stiffnet.results.study import StudyRow
from stiffnet.studies.study import Group, Job, Scale, Study, equal_within

DATA = "generated:40"
TINY = {"recipe": "smoke", "model": "resnet20_cifar", "data": DATA, "seed": 0, "batch_size": 20,
        "image_size": 8}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a function that trains a network once, and gives what a look at it gets to see."""
    root, known = tmp_path_factory.mktemp("rows"), {}

    def once(attention, **more):
        key = (attention, *more.items())
        if key not in known:
            settings = settled("train", {**TINY, "attention": attention, **more})
            folder = root / str(len(known))
            found = train(Work(settings, (), folder, (), DATA, ""))
            known[key] = StudyRow(f"train-{len(known)}", "train", settings, values=found), folder
        return known[key]

    def look(*made, **settings):
        given = {"limit": 40, "seed": 0, **settings}
        needs, folders = zip(*made, strict=True)
        return Work(given, needs, root / "look", folders, DATA, "")

    return once, look


def test_a_surface_falls_from_all_images_to_none_and_holds_the_total(trained):
    once, look = trained
    found = surface(look(once("se"), m1=1.2, m2=6.0, points=241))
    m1, m2, delta = (np.array(found[key]) for key in ("m1", "m2", "delta"))
    assert delta.shape == (241, 241)
    assert delta[0, 0] == 1
    assert (delta[-1] == 0).all()  # two steps of a stage: none is more than twice their mean
    assert (delta[:, -1] == 0).all()
    assert (np.diff(delta, axis=0) <= 0).all()
    assert (np.diff(delta, axis=1) <= 0).all()
    volume = delta[1:, 1:].sum() * m1[1] * m2[1]
    assert volume == pytest.approx(found["tns"], rel=0.1)


def test_correlations_are_pearsons_and_a_constant_has_none():
    random = np.random.default_rng(0)
    one, other = random.normal(size=(2, 30, 5))
    one[:, 3] = 0.5
    found = correlations(one, other)
    expected = [np.corrcoef(one[:, i], other[:, i])[0, 1] for i in (0, 1, 2, 4)]
    assert found[[0, 1, 2, 4]] == pytest.approx(expected)
    assert np.isnan(found[3])


def test_attention_values_are_related_with_nsi_in_the_first_stage(trained):
    once, look = trained
    made = once("se", model="resnet32_cifar")
    found = values(look(made))
    assert found["steps"] == [f"layer1.{i}" for i in range(1, 5)]  # the first does not count
    known = [each for each in found["correlations"] if each is not None]  # that vary at all
    assert len(known) >= 2
    assert found["correlation"] == pytest.approx(np.mean(known))
    assert all(-1 <= each <= 1 for each in (*known, found["step_correlation"]))
    assert all(0 < each < 1 for each in found["attention_means"])
    assert found["negative_steps"] == pytest.approx(100 * np.mean(np.array(known) < 0))


def test_what_cannot_be_related_is_refused(trained):
    once, look = trained
    with pytest.raises(StepError, match="2 steps of the first stage count and have attention"):
        values(look(once("se")))
    with pytest.raises(StepError, match="Nothing is attached"):
        values(look(once("none")))


def test_forms_of_a_network_are_folded_timed_and_told_apart(trained, monkeypatch):
    """By a clock on which a pass takes a second for every parameter."""
    monkeypatch.setattr(demo_speed, "one_pass", lambda model, images: parameters(model))
    monkeypatch.setattr(demo_speed, "warm_seconds", lambda seconds: seconds)
    once, look = trained
    assert "forms" in ALONE
    three = [once(name) for name in ("none", "se", "asr:se")]
    found = forms(look(*three, batch_size=8, rounds=1))
    assert found["forms"] == list(FORMS)
    row = StudyRow("forms-0", "forms", {}, values=found)
    rows = {name: form(Work({"form": name}, (row,), three[0][1], (), DATA, "")) for name in FORMS}
    for (made, _), name in zip(three, FORMS, strict=False):
        for key in ("accuracy", "parameters"):
            assert rows[name][key] == made.values[key]
    assert rows["folded"]["accuracy"] == rows["asr"]["accuracy"]
    assert rows["folded"]["parameters"] == rows["plain"]["parameters"]
    assert rows["attention"]["parameters"] > rows["plain"]["parameters"]
    for found in rows.values():
        assert found["images_per_second"] == pytest.approx(8 / found["parameters"])
        share = rows["plain"]["parameters"] / found["parameters"]
        assert found["speed"] == pytest.approx(100 * share)


def test_what_is_replaced_is_judged_on_the_images_that_its_training_was_judged_on(
    trained, monkeypatch
):
    given = []

    def kept(model, loader, **_):
        given.extend([list(loader), list(loader)])
        return model

    monkeypatch.setattr(rows_looks, "freeze_attention", kept)
    once, look = trained
    row, folder = once("se", crop="pad", padding=16)
    found = rows_looks.freeze(look((row, folder), limit=7))
    assert found["accuracy"] == found["before"] == row.values["accuracy"]
    training, _ = open_splits(DATA)
    images, labels = (torch.cat(parts) for parts in zip(*given[0], strict=True))
    assert sorted(labels.tolist()) == sorted(training.labels.tolist())  # each once
    top = images[:, :, 0]
    framed = (top == top[:, :, :1]).all(dim=2).all(dim=1)
    assert 0.15 < framed.double().mean() < 0.7  # black above, in some of the places
    torch.testing.assert_close(given[0], given[1], rtol=0.0, atol=0.0)  # read again, the same


def test_a_training_that_fails_takes_the_rows_made_of_it_along_and_no_others(tmp_path):
    def job(attention, **more):
        return Job("train", {**TINY, "data": "generated", "attention": attention, **more})

    fine = Job("surface", {"m1": 1.0, "m2": 1.0, "points": 2, "limit": 4}, (job("none"),))
    wild = job("none", learning_rate=1e6, weight_decay=1e6, epochs=4)
    together = Job("forms", {"batch_size": 4, "rounds": 1}, (job("none"), wild, job("none")))
    study = Study(
        name="asr-fake",
        locator="Figure 0",
        claim="It is the same.",
        rows={
            "surface": fine,
            "plain": Job("form", {"form": "plain"}, (together,)),
            "folded": Job("form", {"form": "folded"}, (together,)),
        },
        metric="speed",
        unit="speed",
        judges=(equal_within("plain", "folded", 1.0),),
        scales={"demo": Scale((Group("made up"),), {})},
    )
    done = run_studies([study], "demo", tmp_path, Here(), seeds=1, data=[DATA])
    lines = {line.row: line for line in done.reports[0].lines}
    assert not lines["surface"].error
    assert lines["surface"].values["tns"] is not None
    for row in ("plain", "folded"):
        said = "it is made from another row, which failed: `test_loss` is nan after epoch 1."
        assert lines[row].error.startswith(said)
    assert (tmp_path / "report.html").exists()
