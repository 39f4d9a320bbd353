"""How the structure of a folded network differs from its backbone's, as a part of its folder."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Literal

from msgspec import Struct
from torch import nn

from stiffnet.batch_norms import MERGEABLE
from stiffnet.errors import CorruptFileError
from stiffnet.files import read_file
from stiffnet.network.deployed import Change, changed, with_parallel_branches
from stiffnet.network.model_folder import ModelFolder
from stiffnet.schema import parsed

STRUCTURE = "structure.json"
LARGEST = 16 * 2**20  # bytes; a change takes a hundred


def structure_part(changes: Sequence[Change]) -> bytes:
    """Write changes down, in the order in which they were made."""
    return (json.dumps([asdict(change) for change in changes], indent=1) + "\n").encode()


def read_structure(folder: ModelFolder) -> tuple[Change, ...]:
    """Return the changes that a verified folder lists; none if it has no such part.

    Raises:
        CorruptFileError: If the part is not what `structure_part` writes.
        StorageError: If it cannot be read.
    """
    if STRUCTURE not in folder.parts:
        return ()
    raw = read_file(folder.path / STRUCTURE, "Check the disk.", LARGEST)
    try:
        entries: list[_Entry] = parsed(raw, list[_Entry])
    except ValueError as error:
        raise _strange(folder, str(error)) from error
    return tuple(Change(entry.kind, entry.path, entry.into) for entry in entries)


def restructured(model: nn.Module, changes: Sequence[Change], folder: ModelFolder) -> nn.Module:
    """Give a fresh backbone the structure of a folder's network.

    Every change is held against the network before it is made: a folder can only ask for what
    folding could have done.

    Raises:
        CorruptFileError: If a change cannot have been made to this network.
    """
    for change in changes:
        _check(model, change, folder)
        try:
            model = changed(model, [change])
        except Exception as error:  # the module's own code too
            raise _strange(folder, f"{change.path!r} cannot be changed so") from error
    return model


class _Entry(Struct, forbid_unknown_fields=True):
    """A change as the file has it."""

    kind: Literal["branches", "norm"]
    path: str
    into: str

    def __post_init__(self) -> None:
        if bool(self.into) != (self.kind == "norm"):
            raise ValueError(f"a norm goes into a layer, and {self.path[:80]!r} is not told so")


def _check(model: nn.Module, change: Change, folder: ModelFolder) -> None:
    modules = dict(model.named_modules())
    for path in (change.path, change.into):
        if path not in modules:
            name = type(model).__name__
            raise _strange(folder, f"it changes {path[:80]!r}, which {name} does not have")
    if change.kind == "branches" and change.path not in set(with_parallel_branches(model)):
        raise _strange(folder, f"{change.path!r} has no branches to join")
    if change.kind == "norm" and type(modules[change.path]) not in MERGEABLE:
        raise _strange(folder, f"{change.path!r} is not a norm that could be merged")
    if change.kind == "norm" and not _is_layer(modules[change.into]):
        raise _strange(folder, f"{change.into!r} is not a layer that a norm could be merged into")


def _is_layer(module: nn.Module) -> bool:
    """Whether it is a convolution or a linear layer, or a module that is built like one."""
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", module)
    return isinstance(weight, nn.Parameter) and weight.ndim > 1 and bias is not module


def _strange(folder: ModelFolder, why: str) -> CorruptFileError:
    return CorruptFileError(
        f"{folder.path / STRUCTURE} is not what was written for a {folder.name}: {why}. Fold the "
        "network again, or use the versions of stiffnet and timm that wrote it."
    )
