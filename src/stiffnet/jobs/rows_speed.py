"""Rows of studies that time networks: modules beside none, and forms of one side by side."""

import numpy as np
import torch
from torch import nn

from stiffnet.fold.fold import fold
from stiffnet.jobs.demo_speed import one_pass, rates
from stiffnet.jobs.row_run import Work
from stiffnet.jobs.rows_looks import accuracy_of, trained
from stiffnet.network.create import create_model
from stiffnet.network.open import open_model
from stiffnet.observe.turns import beside, warm_seconds
from stiffnet.results.study import Values
from stiffnet.train.run_folder import RunFolder

PLAIN, ATTENTION, ASR, FOLDED = FORMS = ("plain", "attention", "asr", "folded")


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
            [one_pass(bare, images)], {"gated": one_pass(gated, images)}, ["gated"], 2, warm_seconds
        )
        plain += times
        rounds += found["gated"]
    ratio = float(np.median(rounds))
    rate = len(images) / float(np.median(plain))
    return {
        "images_per_second": rate * ratio,
        "plain_images_per_second": rate,
        "slower": 100 * (1 - ratio),
        "parameters": parameters(gated),
    }


def forms(work: Work) -> Values:
    """Fold the last of three trained networks, and time all four forms between plain passes.

    The first network is the plain one, the second has attention, the third ASR. Speed is in percent
    of the plain network's images/s; the plain one is timed like the others, so that its own speed
    shows how well 100 % is met.
    """
    loaded, _, test = trained(work)
    models = [open_model(RunFolder(folder).final).model for folder in work.need_folders]
    size = work.settings["batch_size"]
    [(images, _)] = test.batches(loaded.preparation, batch_size=size, limit=size)
    result = fold(models[-1], images, passes=0)
    networks = dict(zip(FORMS, [*models, result.model], strict=True))
    accuracies = [need.values["accuracy"] for need in work.needs]
    accuracies.append(accuracy_of(result.model, test.batches(loaded.preparation, batch_size=256)))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    placed = {name: model.to(device) for name, model in networks.items()}
    twice = 2 * work.settings["rounds"]  # as one pass of each is timed in a round
    rate, ratios = rates(placed[PLAIN], placed, images.to(device), rounds=twice)
    speeds = {name: float(np.median(values)) for name, values in ratios.items()}
    return {
        "forms": list(FORMS),
        "accuracies": accuracies,
        "speeds": [100 * speeds[name] for name in FORMS],
        "images_per_second": [rate * speeds[name] for name in FORMS],
        "parameters": [parameters(model) for model in networks.values()],
        "scaled_error": result.report.scaled_error,
    }


def form(work: Work) -> Values:
    """Read one form of a network off those that were timed together."""
    [together] = work.needs
    place = together.values["forms"].index(work.settings["form"])
    found = {
        "accuracy": "accuracies",
        "speed": "speeds",
        "images_per_second": "images_per_second",
        "parameters": "parameters",
    }
    return {name: together.values[column][place] for name, column in found.items()}


def parameters(model: nn.Module) -> int:
    """How many numbers a network learns."""
    return sum(parameter.numel() for parameter in model.parameters())
