"""A folded network in a folder of its own: what it is now, and what it was made of."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import nn

from stiffnet.errors import FoldError
from stiffnet.files import MARK, sweep_temporaries
from stiffnet.network.attention_text import split_attention
from stiffnet.network.create import create_model
from stiffnet.network.deployed import Change, changed
from stiffnet.network.loaded import LoadedModel
from stiffnet.network.model_folder import FOLDED, MANIFEST, WEIGHTS, Fact, write_folder
from stiffnet.network.structure import STRUCTURE, structure_part

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
            parts={STRUCTURE: structure_part(every)},
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
    strange = sorted(
        key for key in wanted.keys() | given.keys() if wanted.get(key) != given.get(key)
    )
    if strange:
        raise FoldError(
            f"The folded network could not be built again as a {name}: {len(strange)} tensors "
            f"differ, such as {', '.join(strange[:3])}. Nothing was written; please report it."
        )
