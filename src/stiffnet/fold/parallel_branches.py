"""Parallel branches (RepVGG, ACNet, MobileOne) made one layer, by their modules' own methods."""

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.errors import FoldError
from stiffnet.fold.copies import tensors_of
from stiffnet.network.deployed import Change, join_parallel_branches, joining_method


def fold_parallel_branches(
    model: nn.Module, gates: Collection[str] = ()
) -> tuple[nn.Module, list[Change], dict[str, str]]:
    """Join the branches of every module that knows how, also of those inside what was joined.

    What attached `gates` are in is left alone, since its own method knows nothing of them. Returned
    are the network, what was joined, and why other modules were not, by path. A method that fails
    is a FoldError.
    """
    changes: list[Change] = []
    left: dict[str, str] = {}
    seen: set[nn.Module] = set()
    waiting = [""]
    while waiting:
        path = waiting.pop()
        module = model.get_submodule(path)
        if module in seen:
            continue
        seen.add(module)
        gate = next((name for name in gates if not path or f"{name}.".startswith(f"{path}.")), None)
        if joining_method(module) and gate is None:
            before = _content(module)
            try:
                model = join_parallel_branches(model, path)
            except Exception as error:  # foreign code
                raise FoldError(
                    f"The branches of {path or type(model).__name__} cannot be joined by its own "
                    f"method: {error}. Fold with `branches=False`."
                ) from error
            module = model.get_submodule(path)
            seen.add(module)
            if not _same(_content(module), before):
                changes.append(Change("branches", path))
        elif joining_method(module) and path:
            left[path] = f"{gate!r} is attached inside, which its own method does not know"
        inside = (f"{path}.{name}" if path else name for name, _ in module.named_children())
        waiting += reversed(list(inside))
    return model, changes, left


Content = tuple[dict[str, Any], dict[str, Tensor]]


def _content(module: nn.Module) -> Content:
    """Classes and settings of a module and of those inside it, and their numbers."""
    parts = {
        path: (type(part), {k: v for k, v in vars(part).items() if isinstance(v, bool | int)})
        for path, part in module.named_modules()
    }
    return parts, {name: tensor.detach().clone() for name, tensor in tensors_of(module).items()}


def _same(one: Content, other: Content) -> bool:
    """Whether a method did nothing, as one does that was called before."""
    (parts, tensors), (other_parts, others) = one, other
    return (parts, tensors.keys()) == (other_parts, others.keys()) and all(
        torch.equal(tensor, others[name]) for name, tensor in tensors.items()
    )
