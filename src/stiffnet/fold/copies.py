"""Copies of a network: in float64 to compute with, and in its own dtype to give back."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.errors import FoldError
from stiffnet.fold.gates import drop_gates
from stiffnet.nested import mapped
from stiffnet.network.deployed import Change, changed


def copied(model: nn.Module) -> nn.Module:
    """Copy a network, with a sentence where that cannot be."""
    try:
        return copy.deepcopy(model)
    except Exception as error:  # foreign objects
        raise FoldError(
            f"{type(model).__name__} cannot be copied, and folding changes a copy: {error}. Take "
            "out what cannot be copied, such as the older `weight_norm`."
        ) from error


def doubled(values: Any) -> Any:
    """Every floating tensor of nested containers in float64."""
    return mapped(values, _double)


def _double(value: Any) -> Any:
    floating = isinstance(value, Tensor) and value.is_floating_point()
    return value.double() if floating else value


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers by name, also those that a state dict leaves out."""
    return {name: tensor.detach().clone() for name, tensor in _tensors(model).items()}


def deployed(
    model: nn.Module,
    gates: Sequence[str],
    gated: Mapping[str, Tensor],
    changes: Sequence[Change],
    final: Mapping[str, Tensor],
) -> nn.Module:
    """Do to a copy of the given network what was done to another, and give it the other's numbers.

    The other one was run in float64, and may remember that; this one has never been run.

    Args:
        model: The given network.
        gates: Paths of those that were taken out.
        gated: All tensors of the other one after that.
        changes: Of its structure, in their order.
        final: All its tensors in the end.
    """
    made = copied(model)
    drop_gates(made, gates)
    _load(made, gated)
    made = changed(made, changes)
    _load(made, final)
    return made


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def _load(model: nn.Module, content: Mapping[str, Tensor]) -> None:
    there = _tensors(model)
    strange = sorted(there.keys() ^ content.keys())
    if strange:
        raise FoldError(
            f"{type(model).__name__} is not changed by the same steps in the same way again: "
            f"{', '.join(strange[:3])} differ. Fold it with `branches=False`."
        )
    with torch.no_grad():
        for name, tensor in there.items():
            tensor.copy_(content[name])
