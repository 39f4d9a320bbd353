"""How fast the forms of a network are, timed in turns with the plain one."""

import copy
import random
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from stiffnet.observe.turns import beside, warm_seconds
from stiffnet.trajectory.wrappers import plain_run


def rates(
    plain: nn.Module,
    others: Mapping[str, nn.Module],
    images: Tensor,
    *,
    rounds: int,
    on_round: Callable[[], object] = lambda: None,
) -> tuple[float, dict[str, tuple[float, ...]]]:
    """Time passes of each network between two passes of the plain one.

    In every round all networks are copied, because where weights happen to lie in memory makes
    one of two equal networks faster.

    Returns:
        Images a second of the plain network, by its median pass, and the speed of every other one
        over the plain one's, round by round.
    """
    found: dict[str, list[float]] = {name: [] for name in others}
    times: list[float] = []
    for number in range(rounds):
        turns = random.Random(number).sample(list(others), len(others))  # noqa: S311 - an order
        passes = {name: one_pass(copy.deepcopy(others[name]), images) for name in turns}
        compared = one_pass(copy.deepcopy(plain), images)
        own, ratios = beside([compared], passes, turns, 1, warm_seconds)
        times += own
        for name, values in ratios.items():
            found[name] += values
        on_round()
    rate = len(images) / float(np.median(times))
    return rate, {name: tuple(values) for name, values in found.items()}


def one_pass(model: nn.Module, images: Tensor) -> Callable[[], object]:
    """Return a pass to be timed."""

    def run_once() -> object:
        with plain_run(model):
            output = model(images)
        if images.is_cuda:
            torch.cuda.synchronize()
        return output

    return run_once


def training_seconds(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return how long one image takes in training, by the fastest of a few steps of a copy."""
    network = copy.deepcopy(model).train()

    def step() -> None:
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        loss.backward()

    with torch.random.fork_rng(devices=[]):
        return min(warm_seconds(step) for _ in range(3)) / len(images)
