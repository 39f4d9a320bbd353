"""A task is one class: the loop, the log, the checkpoints and the best epoch know nothing else."""

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from stiffnet.data.images import Batches, ImageSet
from stiffnet.errors import (
    CheckpointError,
    DataError,
    NonFiniteError,
    RecipeError,
    UnknownNameError,
)
from stiffnet.network.model_folder import read_folder
from stiffnet.train import build
from stiffnet.train.initial import initial_network
from stiffnet.train.recipe import Recipe
from stiffnet.train.recipe_file import build_recipe
from stiffnet.train.run import run
from stiffnet.train.tasks import OURS, TASKS, register_task, task_of
from stiffnet.train.tasks.base import Judged, Task
from train import faults
from train.faults import EVERYTHING, SAMPLES, begin, finish, outcome, pictures

RECIPE = replace(EVERYTHING, task="shade", label_smoothing=0.0, mixup=0.0, cutmix=0.0, epochs=3)


class Shade(Task):
    """Tell how light a picture is and how much it varies: two numbers, a loss of two parts."""

    best = "test_shade_error"
    larger_is_better = False
    sums = ("shade", "contrast")

    def outputs(self, data):
        return 2

    def inputs(self, batch):
        return batch["picture"]

    def judge(self, network, batch, *, training):
        wanted = torch.stack([batch["wanted"][name] for name in self.sums], dim=1)
        shade, contrast = (network(batch["picture"]) - wanted).square().sum(0)
        return Judged(len(wanted), shade + contrast / 2, {"shade": shade, "contrast": contrast})

    def columns(self, sums):
        mean = super().columns(sums)
        return {
            "loss": mean["loss"],
            **{f"{name}_error": math.sqrt(mean[name]) for name in self.sums},
        }


def nested(batches):
    """Batches as dictionaries in dictionaries."""
    for images, labels in batches:
        contrast = images.flatten(1).std(1)
        yield {"picture": images, "wanted": {"shade": labels / 2, "contrast": contrast}}


@dataclass(frozen=True, eq=False)
class NestedBatches(Batches):
    def __iter__(self):
        return nested(super().__iter__())


@dataclass(frozen=True)
class Shades(ImageSet):
    def batches(self, preparation, **options):
        return NestedBatches(**vars(super().batches(preparation, **options)))

    def training_batches(self, *given, **options):
        return nested(super().training_batches(*given, **options))


def learn_shades(*more):
    """Make the task and its data known in this process, then do something more."""
    register_task("shade", Shade)
    train, test = (Shades(**vars(pictures(count, seed))) for count, seed in ((SAMPLES, 0), (10, 1)))
    build.open_splits = lambda spec: (train, test)
    for each in more:
        each()


@pytest.fixture
def shades(monkeypatch):
    monkeypatch.setattr(build, "open_splits", None)
    monkeypatch.setitem(TASKS, "shade", Shade)
    learn_shades()


def test_another_task_is_killed_resumes_and_ends_with_the_same_bits(tmp_path):
    calm = finish(RECIPE, tmp_path / "calm", fault=learn_shades)
    expected = outcome(tmp_path / "calm")
    for nth in (2, 5, 7):  # in the middle of an epoch, at its end, in the next one
        dying = partial(faults.at_file, "state.json", nth, faults.die)
        out = tmp_path / str(nth)
        life = begin(RECIPE, out, "--save-every", 1, fault=partial(learn_shades, dying))
        assert life.end() == -9, life.said
        assert list((out / "checkpoints").iterdir())
        life = finish(RECIPE, out, "--save-every", 1, fault=learn_shades)
        assert "Resuming from" in life.said or nth == 2
        assert outcome(out) == expected
    rows = expected["log"]
    assert [key for key in rows[0] if "_" in key] == [
        "learning_rate", "train_loss", "train_shade_error", "train_contrast_error",
        "test_loss", "test_shade_error", "test_contrast_error",
    ]  # fmt: skip
    for row in rows:
        parts = row["test_shade_error"] ** 2 + row["test_contrast_error"] ** 2 / 2
        assert row["test_loss"] == pytest.approx(parts, rel=1e-6)
    best = min(rows, key=lambda row: row["test_shade_error"])
    kept = read_folder(tmp_path / "calm/best")
    assert (kept.made_by["epochs"], kept.made_by["steps"]) == (best["epoch"], best["step"])
    assert kept.classes == ()
    assert kept.options["num_classes"] == 2
    words = f"epoch 1/3: train loss {rows[0]['train_loss']:.4g}, shade_error "
    assert words in calm.said
    assert f"Test shade error after the last epoch: {rows[-1]['test_shade_error']:.4g}" in calm.said
    assert f"chosen on the test set: {best['epoch']}, {best['test_shade_error']:.4g}." in calm.said


def test_the_best_epoch_is_the_smallest_where_smaller_is_better():
    rows = [{"epoch": n, "test_shade_error": value} for n, value in enumerate((3, 1, 2, 1), 1)]
    task = Shade(RECIPE)
    better = [task.is_better(row, rows[1]) for row in rows]
    assert better == [False] * 4
    assert task.is_better(rows[1], rows[0])
    assert task_of(Recipe()).is_better({"test_top1": 0.5}, {"test_top1": 0.4})


def test_a_column_that_is_not_finite_is_named(shades, tmp_path, monkeypatch):
    monkeypatch.setattr(Shade, "columns", lambda self, sums: {"loss": 1.0, "bias": math.nan})
    with pytest.raises(NonFiniteError, match="`train_bias` is nan after epoch 1"):
        run(RECIPE, tmp_path / "run")


def test_a_checkpoint_of_another_task_is_not_gone_on_with(shades, tmp_path, monkeypatch):
    with pytest.raises(Exception, match="which is kept in"):
        run(RECIPE, tmp_path / "run", audience=faults.Stopper(4))
    with pytest.raises(RecipeError, match="another recipe: task"):
        run(replace(RECIPE, task="classify"), tmp_path / "run", resume=True)
    monkeypatch.setattr(Shade, "sums", ("shade", "contrast", "colour"))
    with pytest.raises(CheckpointError, match="'tally' has an impossible value"):
        run(RECIPE, tmp_path / "run", resume=True)
    monkeypatch.setattr(Shade, "best", "test_colour")
    with pytest.raises(CheckpointError, match="'history' has an impossible value"):
        run(RECIPE, tmp_path / "run", resume=True)


def test_a_network_without_the_outputs_gets_them_or_is_refused(shades, tmp_path):
    run(replace(RECIPE, epochs=1), tmp_path / "run")
    monochrome = type("Monochrome", (Shade,), {"outputs": lambda self, data: 1})
    task, data = monochrome(RECIPE), pictures(10, 1)
    recipe = replace(RECIPE, model=str(tmp_path / "run/final"))
    loaded, [note] = initial_network(recipe, task.outputs(data), ())
    assert "another number of outputs than the 1 that are needed" in note
    task.check(loaded, data, loaded.model(torch.zeros(2, 3, 8, 8)))
    with pytest.raises(CheckpointError, match="does not have the 1 outputs that 'shade' needs"):
        task.check(loaded, data, torch.zeros(2, 1, 8, 8))


def test_a_recipe_says_its_task_and_nothing_that_the_task_does_not_use():
    with pytest.raises(UnknownNameError, match=r"no task called 'clasify'. Did you mean"):
        task_of(Recipe(task="clasify"))
    with pytest.raises(RecipeError, match=r"`label_smoothing` is 0.1, but `task` is 'shade'"):
        Shade(replace(RECIPE, label_smoothing=0.1))
    with pytest.raises(RecipeError, match=r"`mixup` is 0.2, but `task` is 'shade'"):
        Shade(replace(RECIPE, mixup=0.2))


@pytest.mark.parametrize("name", ["classify", "", "Shade", "a b", "_x"])
def test_a_task_has_a_name_of_its_own(name):
    with pytest.raises(RecipeError, match="A task cannot be called"):
        register_task(name, Shade)
    assert TASKS.keys() == OURS


def test_a_recipe_of_the_first_version_says_nothing_of_tasks():
    earlier = Path(__file__).parent.parent / "earlier" / "finished" / "recipe.toml"
    assert "task" not in earlier.read_text()
    assert build_recipe(earlier).task == "classify"
    assert Recipe(task="classify").fingerprint == Recipe().fingerprint == "566de2b9bee9"
    assert Recipe(task="shade").fingerprint != Recipe().fingerprint


def test_a_single_class_is_nothing_to_learn():
    """Cross-entropy over one logit is 0 with a gradient of 0, and every answer is right."""
    logit = torch.randn(4, 1, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(logit, torch.zeros(4, dtype=torch.long))
    loss.backward()
    assert loss == 0
    assert not logit.grad.any()
    alone = ImageSet("one", np.zeros((4, 3, 8, 8), np.uint8), np.zeros(4, np.int64), ("cat",))
    task = task_of(Recipe())
    loaded, _ = initial_network(Recipe(image_size=8), task.outputs(alone), task.classes(alone))
    with pytest.raises(DataError, match="one class, 'cat'"):
        task.check(loaded, alone, torch.zeros(2, 1))
