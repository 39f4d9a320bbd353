"""The kinds of jobs that rows of studies are made of: train, and look at what was trained."""

import random
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import nn

from stiffnet.data import open_splits
from stiffnet.data.boxes import BoxedImages
from stiffnet.data.folder import ImageFolder
from stiffnet.data.images import ImageSet
from stiffnet.errors import DataError, StepError
from stiffnet.jobs.row_run import DATA, Task, Work
from stiffnet.network.attention_text import NONE
from stiffnet.network.create import create_model
from stiffnet.network.loaded import LoadedModel
from stiffnet.network.open import open_model
from stiffnet.observe.growth import growth as follow
from stiffnet.observe.measure import measure as look
from stiffnet.observe.stripes import stripes as look_at_attention
from stiffnet.observe.turns import beside, warm_seconds
from stiffnet.results.ranking import stiffest
from stiffnet.results.stiffness import StiffnessReport
from stiffnet.results.study import Values
from stiffnet.train.freeze import freeze_attention
from stiffnet.train.recipe import Recipe, place_free
from stiffnet.train.recipe_file import build_recipe
from stiffnet.train.run import run
from stiffnet.train.run_folder import RunFolder
from stiffnet.trajectory.wrappers import plain_run

ON = "on"  # the setting of a training that says on which steps the modules are
FEW = 0.10  # share of steps that the StepNet paper calls few
ALONE = {"speed"}  # kinds that are computed while nothing else is


def settled(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Write a job's settings out, so that what two of them share is seen, however it was written.

    Raises:
        StiffnetError: If they cannot be.
    """
    if kind != "train":
        return dict(settings)
    given = dict(settings)
    on = given.pop(ON, None)
    recipe = place_free(build_recipe(given.pop("recipe"), given))
    return asdict(recipe) | ({} if on is None else {ON: dict(on)})


def train(work: Work) -> Values:
    """Train a network by a recipe; a run that was killed goes on."""
    settings = dict(work.settings)
    on = settings.pop(ON, None)
    if on is not None:
        settings["attention"] = _on_steps(settings["attention"], on, work)
    recipe = Recipe(**settings | {DATA: work.data})
    folder = RunFolder(work.folder)
    result = run(recipe, folder.path, resume=folder.recipe.exists(), command=work.command)
    last, best = result.history[-1], result.best
    return {
        "accuracy": 100 * last["test_top1"],
        "best_accuracy": 100 * best["test_top1"],
        "best_epoch": best["epoch"],
        "train_accuracy": 100 * last["train_top1"],
        "loss": last["test_loss"],
        "epochs": last["epoch"],
        "images_per_second": last["images_per_second"],
        "parameters": _parameters(open_model(folder.final).model),
        "attention": recipe.attention,
    }


def measure(work: Work) -> Values:
    """Measure how stiff the trained network is on test images."""
    loaded, _, test = _trained(work)
    report = _looked(loaded.model, loaded, test, work)
    report.save(work.folder / "report.json")
    frame, view = report.to_frame(), report.view()
    seen = view.proportion[view.proportion > 0]
    stages = np.array([report.steps[i].stage for i in report.counted])
    indices = report.nsi[:, report.counted]
    peaks = [indices[:, stages == s].max(1) / indices[:, stages == s].mean(1) for s in set(stages)]
    return {
        "tns": report.tns,
        "tns_se": report.tns_se,
        "increment_total": report.increment_total,
        "accuracy": 100 * (report.accuracy or 0.0),
        "peak": float(np.max(peaks, axis=0).mean()),
        "few": 100 * float((seen <= FEW).mean()),
        "nsi": frame["nsi_mean"].tolist(),
        "steps": frame["step"].tolist(),
        "counted": frame["counted"].tolist(),
    }


def freeze(work: Work) -> Values:
    """Replace the attention of the trained network by its means over training images."""
    loaded, training, test = _trained(work)
    limit = work.settings["limit"]
    batches = training.batches(loaded.preparation, batch_size=64, limit=limit)
    made = freeze_attention(
        loaded.model,
        batches,
        recalibrate=bool(work.settings.get("recalibrate")),
        epochs=int(work.settings.get("epochs", 0)),
    )
    accuracy = _looked(made, loaded, test, work).accuracy
    return {"accuracy": 100 * (accuracy or 0.0), "before": work.needs[0].values["accuracy"]}


def stripes(work: Work) -> Values:
    """Look at how constant the attention of the trained network is over test images."""
    loaded, _, test = _trained(work)
    batches = test.batches(loaded.preparation, batch_size=64, limit=work.settings["limit"])
    report = look_at_attention(loaded.model, batches, facts={"model": loaded.name})
    report.save(work.folder / "stripes.json")
    frame = report.to_frame()
    return {
        "score": 100 * float(frame["score"].mean()),
        "lowest_score": 100 * float(frame["score"].min()),
        "cost": 100 * float(frame["cost"].mean()),
        "steps": frame["step"].tolist(),
        "scores": (100 * frame["score"]).tolist(),
    }


def growth(work: Work) -> Values:
    """Follow noise through the steps of the trained network."""
    loaded, _, test = _trained(work)
    few = work.settings["limit"]
    [(images, _)] = test.batches(loaded.preparation, batch_size=few, limit=few)
    found = follow(loaded.model, images, seed=work.settings["seed"])
    return {
        "growth": float(np.exp(found.log_growth[-1])),
        "log_growth": float(found.log_growth[-1]),
        "log_bound": float(found.log_bound[-1]),
        "share_of_bound": 100 * float(found.nearest.max()),
        "steps": list(found.steps),
        "growths": np.exp(found.log_growth).tolist(),
    }


def speed(work: Work) -> Values:
    """Time passes of a network with a module between passes of it without one."""
    given = work.settings
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    shape = (given["batch_size"], 3, given["image_size"], given["image_size"])
    images = torch.rand(shape, device=device)
    rounds: list[float] = []
    plain: list[float] = []
    for turn in range(given["rounds"]):  # each with networks made anew
        bare, gated = (
            create_model(given["model"], num_classes=10, attention=attention, seed=turn).to(device)
            for attention in (None, given["attention"])
        )
        times, found = beside(
            [_pass(bare, images)], {"gated": _pass(gated, images)}, ["gated"], 2, warm_seconds
        )
        plain += times
        rounds += found["gated"]
    ratio = float(np.median(rounds))
    rate = len(images) / float(np.median(plain))
    return {
        "images_per_second": rate * ratio,
        "plain_images_per_second": rate,
        "slower": 100 * (1 - ratio),
        "parameters": _parameters(gated),
    }


TASKS: dict[str, Task] = {
    "train": train,
    "measure": measure,
    "freeze": freeze,
    "stripes": stripes,
    "growth": growth,
    "speed": speed,
}


def _trained(
    work: Work,
) -> tuple[LoadedModel, ImageSet | ImageFolder, ImageSet | ImageFolder]:
    """Open the network that was trained for the row, and its training and test images."""
    training, test = open_splits(work.data)
    if isinstance(training, BoxedImages) or isinstance(test, BoxedImages):
        raise DataError(f"{work.data} has boxes, and images with labels are needed. Give others.")
    return open_model(RunFolder(work.need_folders[0]).final), training, test


def _looked(
    model: nn.Module, loaded: LoadedModel, test: ImageSet | ImageFolder, work: Work
) -> StiffnessReport:
    batches = test.batches(loaded.preparation, batch_size=120, limit=work.settings.get("limit"))
    attention, seed = work.needs[0].values["attention"], work.settings["seed"]
    named = loaded.name if attention == NONE else f"{loaded.name} with {attention}"
    facts = {"model": f"{named}, seed {seed}", "data": test.name, "command": work.command}
    return look(model, batches, classes=test.classes, facts=facts)


def _on_steps(attention: str, on: Mapping[str, Any], work: Work) -> str:
    """Write an attention for a share of the steps: the stiffest of a measured network, or any."""
    [measured] = work.needs
    nsi, counted, steps = (measured.values[key] for key in ("nsi", "counted", "steps"))
    ranked = stiffest(nsi, counted)
    if not ranked:
        raise StepError("No step of the measured network counts. Choose a deeper one.")
    k = max(1, round(on["share"] * len(ranked)))
    if on["which"] == "random":
        chance = random.Random(work.settings["seed"])  # noqa: S311 - a choice, no secret
        ranked = chance.sample(sorted(ranked), len(ranked))
    chosen = sorted(ranked[:k])
    return "+".join(f"{attention},where={steps[i]}" for i in chosen)


def _pass(model: nn.Module, images: torch.Tensor) -> Callable[[], object]:
    def run_once() -> object:
        with plain_run(model):
            output = model(images)
        if images.is_cuda:
            torch.cuda.synchronize()
        return output

    return run_once


def _parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
