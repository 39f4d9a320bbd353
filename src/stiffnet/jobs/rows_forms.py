"""Rows of studies that put forms of a network side by side: plain, with attention, ASR, folded."""

import numpy as np
import torch

from stiffnet.fold.fold import fold
from stiffnet.jobs.demo_speed import rates
from stiffnet.jobs.row_run import Work
from stiffnet.jobs.rows_looks import accuracy_of, trained
from stiffnet.jobs.rows_speed import parameters
from stiffnet.network.open import open_model
from stiffnet.results.study import Values
from stiffnet.train.run_folder import RunFolder

PLAIN, ATTENTION, ASR, FOLDED = FORMS = ("plain", "attention", "asr", "folded")


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
