"""Copies of a network: in float64 to compute with, and in its own dtype to give back.

A copy keeps what is tied by being one tensor, and parts what is tied by its memory alone.
"""

import copy
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.errors import FoldError
from stiffnet.fold.gates import drop_gates
from stiffnet.fold.operations import unsaved_buffers
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


def in_one_memory(model: nn.Module) -> list[str]:
    """Names of two tensors that are different objects and share numbers; none if none are.

    ``b.data = a.data`` ties parameters so, which a copy undoes: it has two of them. Buffers that
    are not saved may share theirs: nothing is folded into them.
    """
    groups: list[list[tuple[str, Tensor]]] = []
    reached = 0
    for name, tensor in sorted(_placed(model), key=lambda item: item[1].data_ptr()):
        if tensor.data_ptr() >= reached:
            groups.append([])
        groups[-1].append((name, tensor))
        reached = max(reached, tensor.data_ptr() + _bytes(tensor))
    unsaved = unsaved_buffers(model)
    for group in groups:
        group.sort(key=lambda item: id(item[1]) in unsaved)
        if shared := _shared(group, unsaved):
            return shared
    return []


def _placed(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers that have a memory of which every number is known to be where."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        plain = type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided
        if plain and not tensor.is_meta and tensor.numel():
            yield name, tensor


def _shared(group: Sequence[tuple[str, Tensor]], unsaved: Collection[int]) -> list[str]:
    """Names of two tensors of a piece of memory that have a byte in common."""
    if len(group) < 2:
        return []
    begin = min(tensor.data_ptr() for _, tensor in group)
    end = max(tensor.data_ptr() + _bytes(tensor) for _, tensor in group)
    owners = torch.zeros(end - begin, dtype=torch.int32)
    for number, (name, tensor) in enumerate(group, start=1):
        size = tensor.element_size()
        strides = [step * size for step in tensor.stride()]
        there = owners.as_strided((*tensor.shape, size), (*strides, 1), tensor.data_ptr() - begin)
        if bool(there.any()):
            return [group[int(there.max()) - 1][0], name]
        if id(tensor) not in unsaved:
            there.fill_(number)
    return []


def _bytes(tensor: Tensor) -> int:
    """From the first number of a tensor to the end of its last one."""
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()
