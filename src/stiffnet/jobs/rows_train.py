"""Rows of studies that train a network: one that classifies, detects, or restyles photographs."""

import base64
import io
import math
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from stiffnet.data import open_splits
from stiffnet.data.boxes import BoxedImages
from stiffnet.data.decode import Middle
from stiffnet.data.folder import ImageFolder
from stiffnet.data.picture import open_picture
from stiffnet.errors import StepError
from stiffnet.jobs.row_run import DATA, Work
from stiffnet.jobs.rows_speed import parameters
from stiffnet.network.loaded import LoadedModel
from stiffnet.network.open import open_model
from stiffnet.results.ranking import stiffest
from stiffnet.results.study import Values
from stiffnet.train.recipe import Recipe
from stiffnet.train.run import Result, run
from stiffnet.train.run_folder import RunFolder
from stiffnet.train.tasks.detect import NAMES
from stiffnet.trajectory.wrappers import plain_run

ON = "on"  # the setting of a training that says on which steps the modules are
SHOWN = 4  # held-out photographs in the gallery
SIDE = 128  # pixels of a picture there, where photographs have as many
QUALITY = 85  # of its JPEG


def train(work: Work) -> Values:
    """Train by a recipe; a run that was killed goes on."""
    settings = dict(work.settings)
    on = settings.pop(ON, None)
    if on is not None:
        settings["attention"] = on_steps(settings["attention"], on, work)
    result, _, found = _run(work, settings)
    judged = _detected if result.task.recipe.task == "detect" else _classified
    best = result.best
    return {**judged(result.history[-1], best), "best_epoch": best["epoch"], **found}


def restyle(work: Work) -> Values:
    """Train as `train` does, and restyle photographs that were held out."""
    result, loaded, found = _run(work, work.settings)
    last = result.history[-1]
    _, held_out = open_splits(result.task.data(work.data))
    assert not isinstance(held_out, BoxedImages), "a run on boxes does not restyle"
    preparation = loaded.preparation
    if isinstance(held_out, ImageFolder):
        preparation = replace(preparation, input_size=(3, SIDE, SIDE))
    [(photographs, _)] = held_out.batches(preparation, batch_size=SHOWN, limit=SHOWN)
    with plain_run(loaded.model):
        made = loaded.model(photographs)
    style = Middle(preparation)(open_picture(result.task.recipe.style), 0)  # as the losses see it
    return {
        "loss": last["test_loss"],
        "log_loss": math.log(last["test_loss"]),
        "content": last["test_content"],
        "style": last["test_style"],
        "tv": last["test_tv"],
        "best_loss": result.best["test_loss"],
        "train_loss": last["train_loss"],
        **found,
        "photographs": [_packed(each) for each in photographs],
        "pictures": [_packed(each) for each in made],
        "style_picture": _packed(preparation(style[None])[0]),
    }


def _run(work: Work, settings: Mapping[str, Any]) -> tuple[Result, LoadedModel, Values]:
    """Train; return the run, its network, and the values that every training has."""
    recipe = Recipe(**{**settings, **work.files, DATA: work.data})
    resume = RunFolder(work.folder).recipe.exists()
    result = run(recipe, work.folder, resume=resume, command=work.command)
    last, loaded = result.history[-1], open_model(result.folder.final)
    found = {
        "epochs": last["epoch"],
        "images_per_second": last["images_per_second"],
        "parameters": parameters(loaded.model),
        "attention": recipe.attention,
    }
    return result, loaded, found


def _classified(last: Values, best: Values) -> dict[str, float]:
    return {
        "accuracy": 100 * last["test_top1"],
        "best_accuracy": 100 * best["test_top1"],
        "train_accuracy": 100 * last["train_top1"],
        "loss": last["test_loss"],
    }


def _detected(last: Values, best: Values) -> dict[str, float]:
    """Average precisions in percent; one that does not exist is left out."""
    found = {name: last[f"test_{name}"] for name in NAMES}
    known = {name: 100 * value for name, value in found.items() if value is not None}
    return {**known, "best_ap": 100 * best["test_ap"], "train_loss": last["train_loss"]}


def on_steps(attention: str, on: Mapping[str, Any], work: Work) -> str:
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


def _packed(picture: Tensor) -> str:
    """Return pixels from 0 to 1 as a JPEG file in base64."""
    levels = picture.clamp(0, 1).mul(255).round().to(torch.uint8).permute(1, 2, 0)
    stream = io.BytesIO()
    Image.fromarray(levels.numpy()).save(stream, "JPEG", quality=QUALITY)
    return base64.b64encode(stream.getvalue()).decode()
