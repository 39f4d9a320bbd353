"""Copies of a network: in float64 to compute with, and in its own dtype to give back."""

import copy
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.errors import FoldError
from stiffnet.fold.gates import drop_gates
from stiffnet.nested import mapped
from stiffnet.network.deployed import Change, changed


def in_float64(model: nn.Module) -> nn.Module:
    """Copy a network in float64; see `copied`."""
    doubles: dict[int, Any] = {}
    for tensor in tensors_of(model).values():
        if type(tensor) in (Tensor, nn.Parameter) and tensor.is_floating_point():
            double = tensor.detach().to(torch.float64, copy=True)
            learnt = isinstance(tensor, nn.Parameter)
            doubles[id(tensor)] = nn.Parameter(double, tensor.requires_grad) if learnt else double
    return copied(model, doubles).double()  # the rest, by the modules' own methods


def copied(model: nn.Module, memo: dict[int, Any] | None = None) -> nn.Module:
    """Copy a network, with what `memo` has in the place of objects; a `FoldError` if it cannot be.

    A module has a dozen containers for hooks and the like, nearly all of them empty. Copying these
    one by one in the usual way takes half of the time.
    """
    memo = {} if memo is None else memo  # by the ids of the objects
    for module in model.modules():
        for value in vars(module).values():
            if type(value) in (dict, OrderedDict, set, list) and not value:
                memo[id(value)] = type(value)()
    try:
        return copy.deepcopy(model, memo)
    except Exception as error:  # foreign objects
        raise FoldError(
            f"{type(model).__name__} cannot be copied, and folding changes a copy: {error}. Take "
            "out what cannot be copied, such as the older `weight_norm` or masks of pruning."
        ) from error


def doubled(values: Any) -> Any:
    """Every floating tensor of nested containers in float64."""

    def double(value: Any) -> Any:
        floating = isinstance(value, Tensor) and value.is_floating_point()
        return value.double() if floating else value

    return mapped(values, double)


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers by name, also those that a state dict leaves out."""
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def deployed(
    model: nn.Module,
    gates: Sequence[str],
    gated: Mapping[str, Tensor],
    changes: Sequence[Change],
    final: Mapping[str, Tensor],
) -> nn.Module:
    """Do to a copy of the given network what was done to another, and give it the other's numbers.

    The other one was run in float64, and may remember that; this one has never been run. `gated`
    are all tensors of the other one after its `gates` were taken out, which matter where `changes`
    followed, and `final` those in the end.
    """
    made = copied(model)
    drop_gates(made, gates)
    if gates and changes:
        _load(made, gated)
    made = changed(made, changes)
    _load(made, final)
    return made


def _load(model: nn.Module, content: Mapping[str, Tensor]) -> None:
    there = tensors_of(model)
    strange = sorted(there.keys() ^ content.keys())
    if strange:
        raise FoldError(
            f"{type(model).__name__} cannot be folded twice in the same way: "
            f"{', '.join(strange[:3])} differ. Fold it with `branches=False`."
        )
    with torch.no_grad():
        for name, tensor in there.items():
            tensor.copy_(content[name])
