"""What a pass of a network costs: parameters, multiplications, time."""

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import flop_registry

from stiffnet.results.fold import Cost
from stiffnet.trajectory.batch import Example
from stiffnet.trajectory.origins import Below
from stiffnet.trajectory.wrappers import plain_run


def costs(
    models: Sequence[nn.Module], given: tuple[tuple[Any, ...], dict[str, Any]], *, passes: int
) -> list[Cost]:
    """Count and time passes of several networks; their turns alternate."""
    example = Example(*given)
    times: list[list[float]] = [[] for _ in models]
    for turn in range(passes + 1 if passes else 0):
        for model, own in zip(models, times, strict=True):
            seconds = _seconds(model, example)
            if turn:  # the first warms up
                own.append(seconds)
    return [
        Cost(
            sum(parameter.numel() for parameter in model.parameters()),
            _macs(model, example),
            statistics.median(own) if own else None,
        )
        for model, own in zip(models, times, strict=True)
    ]


def _seconds(model: nn.Module, example: Example) -> float:
    with plain_run(model):
        _wait(model)
        start = time.perf_counter()
        example.on(model)
        _wait(model)
        return time.perf_counter() - start


def _wait(model: nn.Module) -> None:
    parameter = next(model.parameters(), None)
    if parameter is not None and parameter.is_cuda:
        torch.cuda.synchronize(parameter.device)


def _macs(model: nn.Module, example: Example) -> int | None:
    """Count on one image, with gradients: without them, torch joins some layers out of sight."""
    found: list[int] = []

    def count(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        formula = flop_registry.get(getattr(func, "_overloadpacket", func))
        if formula is not None:
            found.append(formula(*args, **kwargs, out_val=result))

    try:
        with plain_run(model), torch.enable_grad(), Below(count):
            example.resized(1).on(model)
    except Exception:  # operations of others' that cannot be followed
        return None
    return sum(found) // 2
