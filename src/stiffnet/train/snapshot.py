"""Everything that a network in training consists of, as tensors, and back from them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict

from stiffnet.errors import CheckpointError
from stiffnet.network.model_folder import same_tensors
from stiffnet.train.checkpoint import Tensors
from stiffnet.train.loop import Trainee
from stiffnet.train.ranks import LOST, is_sharded
from stiffnet.train.state import State

TOGETHER = StateDictOptions(full_state_dict=True, cpu_offload=True)
SIGN = "|"  # between a parameter's name and the name of its tensor in the optimizer


def take(trainee: Trainee) -> Tensors:
    """Return the tensors of a network in training; shares are put together, on rank 0."""
    if is_sharded(trainee.fabric):
        weights, told = get_state_dict(
            trainee.network, trainee.optimizer.optimizer, options=TOGETHER
        )
        slots: Mapping[str, Mapping[str, Any]] = told.get("state", {})  # type: ignore[assignment]
        return Tensors(weights, _named(slots), {})  # type: ignore[arg-type]
    state: Mapping[int, Mapping[str, Any]] = trainee.optimizer.optimizer.state_dict()["state"]
    names = _names(trainee)
    return Tensors(
        trainee.network.state_dict(),
        _named({names[number]: entries for number, entries in state.items()}),
        {} if trainee.average is None else trainee.average.state_dict(),
    )


def restore(trainee: Trainee, tensors: Tensors, state: State) -> None:
    """Bring a network in training to where the tensors and the numbers say, if they are its own."""
    try:
        fill = _fill_shares if is_sharded(trainee.fabric) else _fill
        fill(trainee, tensors)
        if trainee.average is not None:
            own = trainee.average.state_dict()
            trainee.average.load_state_dict(_untied(tensors.average, own))
    except (RuntimeError, KeyError) as error:
        if LOST.search(str(error)):
            raise
        said = " ".join(str(error).split())[:300]
        raise CheckpointError(
            f"The checkpoint is of another network: {said} Give the recipe that it was trained by."
        ) from error
    if state.precision:
        trainee.fabric.strategy.precision.load_state_dict(state.precision)
    trainee.state = state


def _names(trainee: Trainee) -> list[str]:
    """Names of the parameters, in the order in which torch's optimizers number them."""
    known = {id(parameter): name for name, parameter in trainee.network.named_parameters()}
    groups = trainee.optimizer.param_groups
    return [known[id(parameter)] for group in groups for parameter in group["params"]]


def _named(slots: Mapping[str, Mapping[str, Any]]) -> dict[str, Tensor]:
    return {
        f"{name}{SIGN}{key}": value
        for name, entries in slots.items()
        for key, value in entries.items()
        if isinstance(value, Tensor)
    }


def _by_parameter(slots: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    state: dict[str, dict[str, Tensor]] = {}
    for full, value in slots.items():
        name, _, key = full.rpartition(SIGN)
        state.setdefault(name, {})[key] = value
    return state


def _fill(trainee: Trainee, tensors: Tensors) -> None:
    trainee.network.load_state_dict(_untied(tensors.weights, trainee.network.state_dict()))
    optimizer = trainee.optimizer.optimizer
    parameters = dict(trainee.network.named_parameters())
    slots = _by_parameter(tensors.optimizer)
    for name in slots:
        for key, value in slots[name].items():
            if name not in parameters or value.shape not in (parameters[name].shape, ()):
                raise KeyError(f"{name}{SIGN}{key}")
    state = {
        number: {key: _laid_out(value, parameters[name]) for key, value in slots[name].items()}
        for number, name in enumerate(_names(trainee))
        if name in slots
    }
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _untied(stored: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Add the other names of tensors that a network has under several, and a file under one."""
    others = {name: first for name, first in same_tensors(wanted).items() if name not in stored}
    return {**stored, **{name: stored[first] for name, first in others.items() if first in stored}}


def _laid_out(value: Tensor, like: Tensor) -> Tensor:
    """Return `value` with its axes in memory as those of its parameter, for speed."""
    if value.shape != like.shape:  # a count of steps
        return value
    return torch.empty_like(like, dtype=value.dtype).copy_(value)


def _fill_shares(trainee: Trainee, tensors: Tensors) -> None:
    optimizer = trainee.optimizer.optimizer
    groups = optimizer.state_dict()["param_groups"]
    names = _names(trainee)
    told = [{**group, "params": [names[number] for number in group["params"]]} for group in groups]
    set_state_dict(
        trainee.network,
        optimizer,
        model_state_dict=dict[str, Any](_untied(tensors.weights, trainee.network.state_dict())),
        optim_state_dict={"state": _by_parameter(tensors.optimizer), "param_groups": told},  # type: ignore[dict-item]
        options=TOGETHER,
    )
