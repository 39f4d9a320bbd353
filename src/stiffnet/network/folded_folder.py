"""A folded network in a folder of its own: what it is now, and what it was made of.

How its structure differs from its backbone's is a part of the folder, `STRUCTURE`.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from msgspec import Struct
from torch import nn

from stiffnet.batch_norms import MERGEABLE
from stiffnet.errors import CorruptFileError, FoldError
from stiffnet.files import MARK, read_file, sweep_temporaries
from stiffnet.network.attention_text import split_attention
from stiffnet.network.create import create_model
from stiffnet.network.deployed import Change, changed, with_parallel_branches
from stiffnet.network.loaded import LoadedModel
from stiffnet.network.model_folder import FOLDED, MANIFEST, WEIGHTS, Fact, ModelFolder, write_folder
from stiffnet.schema import parsed

STRUCTURE = "structure.json"
LARGEST = 16 * 2**20  # bytes of it; a change takes a hundred
PARTS = (MANIFEST, WEIGHTS, STRUCTURE)


def write_folded(
    path: str | os.PathLike[str],
    model: nn.Module,
    changes: Sequence[Change],
    *,
    source: LoadedModel,
    made_by: Mapping[str, Fact],
) -> Path:
    """Write a folded network to a folder that `open_model` takes.

    A new folder is whole or not there: it is written beside its place, under another name. `source`
    is the network that was folded, as it was opened; `changes` are those of its structure, as the
    fold's report lists them, and `made_by` says what folded it, besides what is known of the
    source.

    Raises:
        FoldError: If a network of that name could not be given its weights again.
        CheckpointError: If something given cannot be written down.
    """
    options, folded = dict(source.options), None
    if isinstance(text := options.get("attention"), str):
        options["attention"], folded = split_attention(text)
    every = (*source.changes, *changes)
    _prove(model, every, source.name, options)
    facts = {**source.made_by, **({"attention": folded} if folded else {}), **made_by}
    structure = json.dumps([asdict(change) for change in every], indent=1)
    folder = Path(path)
    beside = folder.with_name(f"{MARK}{folder.name}")
    place = folder if folder.exists() else beside
    shutil.rmtree(beside, ignore_errors=True)  # of one that was killed
    sweep_temporaries(folder, PARTS)
    try:
        write_folder(
            place,
            model,
            name=source.name,
            options=options,
            classes=source.classes,
            preparation=source.preparation,
            made_by=facts,
            form=FOLDED,
            parts={STRUCTURE: f"{structure}\n".encode()},
        )
        if place is beside:
            beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return folder


def _prove(
    model: nn.Module, changes: Sequence[Change], name: str, options: Mapping[str, Fact]
) -> None:
    """See that the weights would find their places again, before any is written."""
    fresh = changed(create_model(name, **options), changes)  # type: ignore[arg-type]  # as opened
    wanted, given = (
        {key: tuple(value.shape) for key, value in network.state_dict().items()}
        for network in (fresh, model)
    )
    strange = sorted({key for key, _ in wanted.items() ^ given.items()})
    if strange:
        raise FoldError(
            f"The folded network could not be built again as a {name}: {len(strange)} tensors "
            f"differ, such as {', '.join(strange[:3])}. Nothing was written; please report it."
        )


def restructured(model: nn.Module, folder: ModelFolder) -> tuple[nn.Module, tuple[Change, ...]]:
    """Give a fresh backbone the structure of a verified folder's network; return the changes too.

    Every change is held against the network before it is made: a folder can only ask for what
    folding could have done. A folder without such a part asks for none.

    Raises:
        CorruptFileError: If the part is not what `write_folded` writes, or a change cannot have
            been made to this network.
        StorageError: If it cannot be read.
    """
    if STRUCTURE not in folder.parts:
        return model, ()
    raw = read_file(folder.path / STRUCTURE, "Check the disk.", LARGEST)
    try:
        entries: list[_Entry] = parsed(raw, list[_Entry])
    except ValueError as error:
        raise _strange(folder, str(error)) from error
    changes = tuple(Change(entry.kind, entry.path, entry.into) for entry in entries)
    for change in changes:
        _check(model, change, folder)
        try:
            model = changed(model, [change])
        except Exception as error:  # the module's own code too
            raise _strange(folder, f"{change.path!r} cannot be changed so") from error
    return model, changes


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
