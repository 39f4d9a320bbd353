"""What an attached module remembers: how it was asked for, so that it can be asked for again."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from torch import nn

from stiffnet.attention import ATTENTION
from stiffnet.attention.asr import Asr
from stiffnet.trajectory.step import ATTACHED


@dataclass(frozen=True)
class Memory:
    """How a module came to be where it is."""

    call: int
    """Which call of `attach` put it there, counted within the network."""
    module: str
    """Its registered name, or nothing where it has none."""
    options: Mapping[str, Any]
    start: str
    at: tuple[str, ...]
    """The step, position or norm, as `where` takes it; several steps if its block runs again."""
    block: str
    """Path of the block that it is a child of; for a norm that was replaced, its own."""


def remember(gate: nn.Module, memory: Memory) -> None:
    """Let an attached module know how it was asked for."""
    setattr(gate, ATTACHED, memory)


def memory_of(gate: nn.Module) -> Memory | None:
    """Return what an attached module remembers; None if nobody told it."""
    found = getattr(gate, ATTACHED, None)
    return found if isinstance(found, Memory) else None


def next_call(model: nn.Module) -> int:
    """Return the number of the next call of `attach` on a network."""
    known = (memory_of(module) for module in model.modules())
    return 1 + max((memory.call for memory in known if memory is not None), default=0)


def spelled(module: object, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name and the options by which `attach` makes the same modules again.

    The name is empty if there is none, as for a class that is not registered.

    >>> from stiffnet.attention.asr import asr
    >>> spelled(asr("se", depth=2, reduction=4), {})
    ('asr:se', {'depth': 2, 'reduction': 4})
    """
    if isinstance(module, str):
        return module, dict(options)
    if isinstance(module, Asr):
        own = [each for each in fields(Asr) if each.name not in ("module", "options")]
        given = {each.name: getattr(module, each.name) for each in own}
        changed = {each.name: given[each.name] for each in own if given[each.name] != each.default}
        return module.__name__, {**changed, **dict(module.options)}
    names = (entry.name for entry in ATTENTION if entry.value is module)
    return next(names, ""), dict(options)
