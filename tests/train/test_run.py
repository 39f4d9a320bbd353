"""A run is told in full, can be gone on with, and refuses what would lose or mix something."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from stiffnet.data import open_splits
from stiffnet.errors import (
    CheckpointError,
    DataError,
    NonFiniteError,
    RecipeError,
    UnknownNameError,
)
from stiffnet.fold.fold import fold
from stiffnet.network.attach import attached
from stiffnet.network.create import create_model
from stiffnet.network.folded_folder import write_folded
from stiffnet.network.model_folder import read_folder
from stiffnet.network.open import open_model
from stiffnet.train.checkpoint import checkpoints
from stiffnet.train.recipe import Recipe
from stiffnet.train.recipe_file import build_recipe
from stiffnet.train.run import Audience, Machinery, run
from stiffnet.train.run_folder import RunFolder
from stiffnet.train.stopping import Stopped

TINY = Recipe(
    model="resnet20_cifar", data="generated:40", image_size=8, batch_size=16, epochs=3, padding=1
)


class Listener(Audience):
    """Writes down what it hears, and stops the run when asked to."""

    def __init__(self, stop_at=None):
        self.images, self.rows, self.notes = [], [], []
        self.stop_at = stop_at

    def begin(self, images, done):
        self.total, self.done = images, done

    def step(self, images, tally):
        import os
        import signal

        self.images.append(images)
        if len(self.images) == self.stop_at:
            os.kill(os.getpid(), signal.SIGTERM)

    def epoch(self, row):
        self.rows.append(row)

    def note(self, text):
        self.notes.append(text)


def weights(folder):
    return load_file(folder / "final" / "weights.safetensors")


def checkpoints_of(run):
    return checkpoints(run / "checkpoints", RunFolder(run).owner)


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def test_names_that_were_changed_in_a_weights_file_are_told(tmp_path):
    state = create_model("resnet20_cifar", num_classes=10).state_dict()
    theirs = {name.replace("shortcut", "downsample"): value for name, value in state.items()}
    save_file({k: v.contiguous() for k, v in theirs.items()}, tmp_path / "theirs.safetensors")
    listener = Listener()
    recipe = replace(TINY, weights=str(tmp_path / "theirs.safetensors"), epochs=1)
    run(recipe, tmp_path / "run", audience=listener)
    assert any("downsample to shortcut" in text for text in listener.notes)


def test_everybody_hears_the_same_story(tmp_path):
    listener = Listener()
    result = run(TINY, tmp_path / "run", audience=listener)
    rows = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert result.history == listener.rows == rows
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert sum(listener.images) == listener.total == 3 * 40
    assert listener.done == 0
    assert result.best["test_top1"] == max(row["test_top1"] for row in rows)
    assert build_recipe(str(tmp_path / "run/recipe.toml")) == TINY


def test_what_is_left_are_two_networks_that_open_by_themselves(tmp_path):
    run(TINY, tmp_path / "run", command="stiffnet train …")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "best", "final", "log.jsonl", "recipe.toml", "run.json", "run.lock",
    ]  # fmt: skip
    final = read_folder(tmp_path / "run/final")
    assert final.made_by["epochs"] == 3
    assert final.made_by["command"] == "stiffnet train …"
    loaded = open_model(tmp_path / "run/final")
    assert len(loaded.classes) == loaded.model.num_classes
    assert loaded.preparation.input_size == (3, 8, 8)


@pytest.mark.parametrize("step", [1, 3, 4, 8])
def test_a_stopped_run_goes_on_as_if_it_had_not_been(step, tmp_path):
    recipe = replace(TINY, ema_decay=0.9, noise="random", noise_a=0.1, noise_b=0.1)
    run(recipe, tmp_path / "whole")
    with pytest.raises(Stopped, match=f"after step {step}, which is kept") as stopped:
        run(recipe, tmp_path / "run", audience=Listener(stop_at=step))
    assert stopped.value.exit_code == 143
    listener = Listener()
    result = run(recipe, tmp_path / "run", resume=True, audience=listener)
    assert "Resuming from" in listener.notes[0]
    assert same(weights(tmp_path / "run"), weights(tmp_path / "whole"))
    assert len(result.history) == 3


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_checkpoint_within_an_epoch_changes_nothing(optimizer, tmp_path):
    recipe = replace(Recipe(**{**vars(TINY), "optimizer": optimizer, "learning_rate": 0.01}))
    plain = run(recipe, tmp_path / "plain")
    often = run(recipe, tmp_path / "often", machinery=Machinery(save_every=1))
    assert same(weights(tmp_path / "plain"), weights(tmp_path / "often"))
    for one, other in zip(plain.history, often.history, strict=True):
        timeless = {"images_per_second": 0}
        assert {**one, **timeless} == {**other, **timeless}


def test_a_folder_with_a_run_is_not_taken_for_a_new_one(tmp_path):
    run(TINY, tmp_path / "run")
    before = weights(tmp_path / "run")
    with pytest.raises(RecipeError, match=r"holds a run already. Add `--resume`"):
        run(replace(TINY, seed=1), tmp_path / "run")
    with pytest.raises(RecipeError, match=r"has another recipe: seed \(0 there, 1 now\)"):
        run(replace(TINY, seed=1), tmp_path / "run", resume=True)
    assert same(weights(tmp_path / "run"), before)
    run(replace(TINY, seed=1), tmp_path / "run", again=True)
    assert not same(weights(tmp_path / "run"), before)


def test_a_finished_run_is_not_run_again(tmp_path):
    first = run(TINY, tmp_path / "run")
    listener = Listener()
    second = run(TINY, tmp_path / "run", resume=True, audience=listener)
    assert second.history == first.history
    assert listener.images == []
    assert "is finished" in listener.notes[0]


def test_there_must_be_something_to_resume(tmp_path):
    with pytest.raises(CheckpointError, match=r"holds no run to resume. Leave out `--resume`"):
        run(TINY, tmp_path / "run", resume=True)
    assert not (tmp_path / "run").exists()


def test_the_data_must_still_be_the_same(tmp_path, monkeypatch):
    with pytest.raises(Stopped):
        run(TINY, tmp_path / "run", audience=Listener(stop_at=2))
    fewer = [images.__class__(**{**vars(images), "images": images.images[:30],
             "labels": images.labels[:30]}) for images in open_splits(TINY.data)]  # fmt: skip
    monkeypatch.setattr("stiffnet.train.build.open_splits", lambda spec: fewer)
    with pytest.raises(DataError, match=r"there are now 30 training images instead of 40"):
        run(TINY, tmp_path / "run", resume=True)


def test_a_loss_that_is_no_number_ends_the_run_and_is_in_no_checkpoint(tmp_path):
    wild = replace(TINY, learning_rate=1e6, epochs=20, momentum=0.99)
    with pytest.raises(NonFiniteError, match="Lower `learning_rate` or set `clip_norm`"):
        run(wild, tmp_path / "run", machinery=Machinery(save_every=1))
    for path in checkpoints_of(tmp_path / "run"):
        tensors = load_file(path / "weights.safetensors")
        assert all(torch.isfinite(tensor).all() for tensor in tensors.values())


def test_the_newest_the_one_before_and_the_best_are_kept(tmp_path):
    with pytest.raises(Stopped):
        run(TINY, tmp_path / "run", audience=Listener(stop_at=8), machinery=Machinery(save_every=1))
    names = [path.name for path in checkpoints_of(tmp_path / "run")]
    assert names[:2] == ["epoch-0002-step-000000008", "epoch-0002-step-000000007"]
    best = json.loads((tmp_path / "run/checkpoints" / names[0] / "state.json").read_text())["best"]
    kept = f"epoch-{best['epoch']:04d}-step-{best['step']:09d}"
    assert set(names[2:]) <= {kept}
    assert kept in names
    assert open_model(tmp_path / "run/checkpoints" / names[0]).name == "resnet20_cifar"


def test_stiffness_is_measured_after_each_epoch_if_asked(tmp_path):
    plain = run(TINY, tmp_path / "plain")
    watched = run(TINY, tmp_path / "watched", machinery=Machinery(tns=20))
    assert all(row["tns"] >= 0 and row["tns_se"] >= 0 for row in watched.history)
    assert "tns" not in plain.history[0]
    assert same(weights(tmp_path / "plain"), weights(tmp_path / "watched"))


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "64-true"])
def test_every_precision_trains_tests_measures_and_resumes(precision, tmp_path):
    recipe = replace(TINY, precision=precision, ema_decay=0.5, epochs=2, data="generated:20")
    whole = run(recipe, tmp_path / "whole", machinery=Machinery(tns=10))
    with pytest.raises(Stopped):
        run(recipe, tmp_path / "run", audience=Listener(stop_at=3), machinery=Machinery(tns=10))
    resumed = run(recipe, tmp_path / "run", resume=True, machinery=Machinery(tns=10))
    assert same(weights(tmp_path / "run"), weights(tmp_path / "whole"))
    assert [row["tns"] for row in resumed.history] == [row["tns"] for row in whole.history]


def test_a_precision_that_the_device_lacks_is_refused_not_replaced(tmp_path):
    with pytest.raises(RecipeError, match="fp16 is not supported on CPU"):
        run(replace(TINY, precision="16-mixed"), tmp_path / "run", machinery=Machinery("cpu"))


def test_a_network_of_ours_can_be_trained_on(tmp_path):
    run(replace(TINY, epochs=1), tmp_path / "run")
    start = run(replace(TINY, epochs=1, learning_rate=1e-9, model=str(tmp_path / "run/final")),
                tmp_path / "tuned")  # fmt: skip
    assert start.history[0]["epoch"] == 1
    tuned, base = weights(tmp_path / "tuned"), weights(tmp_path / "run")
    torch.testing.assert_close(tuned["conv1.weight"], base["conv1.weight"])
    assert read_folder(tmp_path / "tuned/final").name == "resnet20_cifar"


def test_an_attached_network_is_trained_kept_and_opened_again(tmp_path):
    recipe = replace(TINY, attention="se,reduction=4")
    with pytest.raises(Stopped):
        run(recipe, tmp_path / "run", audience=Listener(stop_at=4))
    run(recipe, tmp_path / "run", resume=True)
    run(recipe, tmp_path / "whole")
    assert same(weights(tmp_path / "run"), weights(tmp_path / "whole"))
    loaded = open_model(tmp_path / "run/final")
    assert {found.module for found in attached(loaded.model)} == {"se"}
    assert read_folder(tmp_path / "run/final").options["attention"] == "se,reduction=4"
    with pytest.raises(RecipeError, match="has the attention that it was trained with"):
        run(replace(recipe, model=str(tmp_path / "run/final")), tmp_path / "more")


def test_attention_values_are_kept_after_each_epoch_if_asked(tmp_path):
    recipe = replace(TINY, attention="eca")
    run(recipe, tmp_path / "run", machinery=Machinery(attention_values=7))
    files = sorted((tmp_path / "run/attention").iterdir())
    assert [file.name for file in files] == [f"epoch-000{n}.safetensors" for n in (1, 2, 3)]
    values = load_file(files[-1])
    assert len(values) == 9
    assert values["layer3.2"].shape == (7, 64)
    with pytest.raises(RecipeError, match="`--attention-values` are those of modules that scale"):
        run(TINY, tmp_path / "plain", machinery=Machinery(attention_values=7))


def test_a_folded_network_is_trained_on_and_a_fused_one_is_not(tmp_path):
    recipe = replace(TINY, attention="asr:se", epochs=1)
    run(recipe, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    loaded = open_model(folder.final)
    for fuse in (False, True):
        result = fold(loaded.model, torch.rand(1, 3, 8, 8), fuse=fuse, passes=0)
        write_folded(folder.folded, result.model, result.report.changes, source=loaded, made_by={})
        on = replace(recipe, model=str(folder.folded), attention="none")
        if not fuse:
            run(on, tmp_path / "on")
            assert open_model(tmp_path / "on/final").options["attention"] is None
            continue
        with pytest.raises(CheckpointError, match="is a deployed network, whose norms"):
            run(on, tmp_path / "more")
    run(recipe, tmp_path / "run", again=True)
    assert not folder.folded.exists()


def test_attention_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UnknownNameError, match="Did you mean 'se'"):
        run(replace(TINY, attention="see"), tmp_path / "run")


def test_a_run_gives_way_only_when_the_next_one_can_begin(tmp_path):
    run(TINY, tmp_path / "run")
    before = weights(tmp_path / "run")
    with pytest.raises(RecipeError, match="cannot be run on images of 8 pixels"):
        run(replace(TINY, model="vgg19_cifar"), tmp_path / "run", again=True)
    assert same(weights(tmp_path / "run"), before)


def test_tied_weights_and_their_average_are_resumed_to_the_same_bits(tmp_path):
    recipe = replace(TINY, attention="dia", ema_decay=0.9, epochs=1)
    run(recipe, tmp_path / "whole")
    with pytest.raises(Stopped):
        run(recipe, tmp_path / "run", audience=Listener(stop_at=2))
    run(recipe, tmp_path / "run", resume=True)
    assert same(weights(tmp_path / "run"), weights(tmp_path / "whole"))


def test_a_recipe_that_was_changed_behind_the_runs_back_is_noticed(tmp_path):
    with pytest.raises(Stopped):
        run(TINY, tmp_path / "run", audience=Listener(stop_at=2))
    file = tmp_path / "run/recipe.toml"
    file.write_text(file.read_text().replace("seed = 0", "seed = 1"))
    with pytest.raises(RecipeError, match=r"another recipe: seed \(0 there, 1 now\)"):
        run(replace(TINY, seed=1), tmp_path / "run", resume=True)


def test_a_signal_between_two_steps_is_not_lost(tmp_path, monkeypatch):
    """One that comes while the ranks agree is heard at the next step."""
    import os
    import signal

    from stiffnet.train import loop

    real, asked = loop.largest, []

    def late(fabric, number):
        asked.append(number)
        if len(asked) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(fabric, number)

    monkeypatch.setattr(loop, "largest", late)
    with pytest.raises(Stopped, match="after step 3,"):
        run(TINY, tmp_path / "run")


def test_a_number_that_does_not_exist_is_none_in_the_log_and_survives(tmp_path):
    """One image has a TNS without a standard error."""
    with pytest.raises(Stopped):
        run(TINY, tmp_path / "run", audience=Listener(stop_at=4), machinery=Machinery(tns=1))
    result = run(TINY, tmp_path / "run", resume=True, machinery=Machinery(tns=1))
    assert [row["tns_se"] for row in result.history] == [None] * 3
    assert run(TINY, tmp_path / "run", resume=True).history == result.history
