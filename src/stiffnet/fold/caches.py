"""Caches that a network's code keeps outside of its objects, where a copy of it writes too.

A copy has attributes of its own, but shares its classes, the variables of their files and every
`functools.lru_cache` with the network that it was copied from. What a pass in float64 leaves there
would come back in float32.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from stiffnet.nested import tensors_in


@contextmanager
def own_caches(model: nn.Module) -> Iterator[None]:
    """Give shared dictionaries, lists and variables back as they were, and empty shared caches."""
    spaces = _namespaces(model)
    kept = [(space, _state(space)) for space in spaces]
    try:
        yield
    finally:
        for space, before in kept:
            _give_back(space, before)
        for cache in _function_caches(model, spaces):
            cache.cache_clear()


State = dict[str, tuple[Any, Any]]
"""Variables that may be caches: each object, and a copy of what was in it."""


def _namespaces(model: nn.Module) -> list[Any]:
    """Classes of the modules and the files that they are from, without torch's own."""
    classes = dict.fromkeys(
        cls
        for module in model.modules()
        for cls in type(module).__mro__[:-1]
        if cls.__module__.partition(".")[0] not in ("torch", "builtins", "stiffnet", "typing")
    )
    files = dict.fromkeys(cls.__module__ for cls in classes)
    return [*classes, *(sys.modules[name] for name in files if name in sys.modules)]


def _state(space: Any) -> State:
    return {
        name: (value, value.copy() if isinstance(value, dict | list) else value)
        for name, value in list(vars(space).items())
        if not name.startswith("__") and isinstance(value, dict | list | Tensor | type(None))
    }


def _give_back(space: Any, before: State) -> None:
    """Undo what brought tensors in; anything else that was stored there stays."""
    for name, (value, _) in _state(space).items():
        if isinstance(value, Tensor) and (name not in before or before[name][0] is not value):
            if name in before:
                setattr(space, name, before[name][0])
            else:
                delattr(space, name)
    for value, content in before.values():
        if isinstance(value, dict) and _new_tensors(value.values(), content.values()):
            value.clear()
            value.update(content)
        elif isinstance(value, list) and _new_tensors(value, content):
            value[:] = content


def _new_tensors(now: Any, before: Any) -> bool:
    known = {id(tensor) for tensor in tensors_in(list(before))}
    return any(id(tensor) not in known for tensor in tensors_in(list(now)))


def _function_caches(model: nn.Module, spaces: list[Any]) -> list[Any]:
    """Every `lru_cache` of a module's own, of its class and of its file."""
    values = [value for module in model.modules() for value in vars(module).values()]
    values += [value for space in spaces for value in vars(space).values()]
    plain = [getattr(value, "__func__", value) for value in values]  # of class and static methods
    return [
        value
        for value in plain
        if callable(getattr(value, "cache_clear", None))
        and callable(getattr(value, "cache_info", None))
        and not isinstance(value, type)
    ]
