"""Which state dicts a checkpoint holds, and which of them is meant."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from stiffnet.errors import CheckpointError
from stiffnet.words import few, listed

WRAPPERS = ("state_dict", "model", "model_state_dict", "state_dict_ema", "model_ema")
DEEPEST = 4  # mappings within mappings; a checkpoint may contain itself
SHOWN = 4  # keys in a sentence


@dataclass(frozen=True)
class StateDict:
    """Tensors by name, and where in a checkpoint they were."""

    path: Path
    """Of the file or folder."""
    key: str
    """Keys on the way to it, joined by dots; empty at the top."""
    values: Mapping[str, object]
    others: tuple["StateDict", ...] = ()
    """What else the checkpoint holds, the likelier ones first."""
    certain: bool = True
    """Its key says that it is meant, or the user does; if not, one of the others may be."""
    of: str = ""
    """Name of the network that the checkpoint says it is of, as timm's do."""


def chosen_state_dict(content: Mapping[str, object], path: Path, key: str = "") -> StateDict:
    """Return the state dict of a checkpoint that a key names, or that is usually meant.

    The key is that of the keys on the way to the state dict, joined by dots; at the end may stand
    what the names of the wanted tensors begin with, as in ``state_dict.teacher``, or this alone.

    Raises:
        CheckpointError: If there is none, or none of that name.
    """
    found = sorted(_found(content, path), key=_rank)
    if not found:
        raise CheckpointError(
            f"{path} holds no state dict; at its top are these keys: "
            f"{few(map(str, content), SHOWN)}. Save the model's `state_dict()`."
        )
    if key:
        return _named(found, key)
    first, *others = found
    certain = not others or _rank(first) < _rank(others[0])
    return replace(first, others=tuple(others), certain=certain)


def _named(found: list[StateDict], key: str) -> StateDict:
    for each in found:
        others = tuple(other for other in found if other is not each)
        start = key.removeprefix(f"{each.key}.") if each.key else key
        start = "" if key == each.key else f"{start}."
        part = {k.removeprefix(start): v for k, v in each.values.items() if k.startswith(start)}
        if part:
            return StateDict(each.path, key, part, others)
    known = [each.key for each in found if each.key]
    parts = dict.fromkeys(name.split(".")[0] for name in found[0].values if "." in name)
    places = f" under {listed(known, SHOWN)}" if known else " at its top"
    raise CheckpointError(
        f"{found[0].path} holds nothing under the key {key!r}: it has a state dict{places}, whose "
        f"names begin with {few(parts, SHOWN)}. Give one of these keys, or leave it out."
    )


def _found(
    content: Mapping[str, object], path: Path, keys: tuple[str, ...] = ()
) -> Iterator[StateDict]:
    """Every state dict in a checkpoint: mappings with tensors, of which none is within another."""
    inner = [
        each
        for key, value in content.items()
        if isinstance(value, Mapping)
        and len(keys) < DEEPEST
        and isinstance(key, str)
        and "optim" not in key  # its moments have names and tensors too
        for each in _found(value, path, (*keys, key))
    ]
    own = sum(isinstance(value, Tensor) for value in content.values())
    wrapped = any(key in content and isinstance(content[key], Mapping) for key in WRAPPERS)
    most = max((len(each.values) for each in inner), default=0)
    if inner and (wrapped or most >= own):
        yield from inner
    elif own and all(isinstance(name, str) for name in content):
        yield StateDict(path, ".".join(keys), content)


def _rank(state: StateDict) -> tuple[int, ...]:
    """Tell by its keys how likely a state dict is the one that is meant; small is likely."""
    order = {key: number for number, key in enumerate(WRAPPERS)}
    return tuple(order.get(key, len(order)) for key in state.key.split("."))
