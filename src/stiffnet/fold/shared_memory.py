"""Tensors of a network that are tied by their memory alone."""

from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor, nn

from stiffnet.fold.operations import unsaved_buffers


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
