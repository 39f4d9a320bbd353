"""Rows of studies that time networks, side by side."""

import numpy as np
import torch
from torch import nn

from stiffnet.jobs.demo_speed import one_pass
from stiffnet.jobs.row_run import Work
from stiffnet.network.create import create_model
from stiffnet.observe.turns import beside, warm_seconds
from stiffnet.results.study import Values


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


def parameters(model: nn.Module) -> int:
    """How many numbers a network learns."""
    return sum(parameter.numel() for parameter in model.parameters())
