"""Rows of studies that train a network."""

import random
from collections.abc import Mapping
from typing import Any

from stiffnet.errors import StepError
from stiffnet.jobs.row_run import DATA, Work
from stiffnet.jobs.rows_speed import parameters
from stiffnet.network.open import open_model
from stiffnet.results.ranking import stiffest
from stiffnet.results.study import Values
from stiffnet.train.recipe import Recipe
from stiffnet.train.run import run
from stiffnet.train.run_folder import RunFolder
from stiffnet.train.tasks.detect import NAMES

ON = "on"  # the setting of a training that says on which steps the modules are


def train(work: Work) -> Values:
    """Train a network by a recipe; a run that was killed goes on."""
    settings = dict(work.settings)
    on = settings.pop(ON, None)
    if on is not None:
        settings["attention"] = on_steps(settings["attention"], on, work)
    recipe = Recipe(**settings | {DATA: work.data})
    folder = RunFolder(work.folder)
    result = run(recipe, folder.path, resume=folder.recipe.exists(), command=work.command)
    last, best = result.history[-1], result.best
    judged = _detected if recipe.task == "detect" else _classified
    return {
        **judged(last, best),
        "best_epoch": best["epoch"],
        "epochs": last["epoch"],
        "images_per_second": last["images_per_second"],
        "parameters": parameters(open_model(folder.final).model),
        "attention": recipe.attention,
    }


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
