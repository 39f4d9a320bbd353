"""What is attached to a network, written down as JSON, and attached again to a fresh one."""

import json
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

import torch
from msgspec import Struct, to_builtins
from torch import nn

from stiffnet.errors import CheckpointError, CorruptFileError, StepError, StiffnetError
from stiffnet.network.attach import Attachment, attach, attached, detach, nothing_attached
from stiffnet.network.gate_memory import Memory, memory_of
from stiffnet.schema import fitted
from stiffnet.sealed import RESULT, sealed

FORMAT: Literal["stiffnet attachment, version 1"] = "stiffnet attachment, version 1"
KEY = "stiffnet_attachment"  # in a configuration or a checkpoint of others

Record = dict[str, Any]


class _Modules(Struct, forbid_unknown_fields=True):
    """What one call of `attach` did."""

    inside: str  # path of the network that it was called with
    module: str
    options: dict[str, Any]
    start: str
    at: list[str]  # steps, positions or norms
    names: list[str]  # paths of the modules
    parameters: int


class _File(Struct, forbid_unknown_fields=True):
    format: Literal["stiffnet attachment, version 1"]
    modules: list[_Modules]


def attachment(model: nn.Module) -> Record:
    """Write down what is attached to a network, to be kept beside its state dict.

    It says which modules sit where and with which options, not what they have learnt: that is in
    the state dict. `reattach` puts them into a fresh network of the same class, which the state
    dict then fits. The network may hold the one that modules were attached to, as a training
    script's own module does.

    Returns:
        Plain values that JSON and `torch.save` take, with a checksum.

    Raises:
        StepError: If nothing is attached, or a module or an option cannot be written down.

    Example:
        >>> import timm
        >>> model = attach(timm.create_model("resnet18"), "se", reduction=8, where="layer4.*")
        >>> attachment(model)["modules"][0]["at"]
        ['layer4.0', 'layer4.1']
    """
    calls = _calls(model)
    if not calls:
        raise nothing_attached(model, ", so there is nothing to write down")
    modules = [_written(inside, call) for (inside, _), call in calls.items()]
    content = to_builtins(_File(FORMAT, modules))
    record: Record = json.loads(sealed(content))
    return record


def reattach(model: nn.Module, record: Mapping[str, Any], *, example: Any = None) -> nn.Module:
    """Attach what `attachment` wrote down to a fresh network, all of it or nothing.

    Load the state dict afterwards, with ``strict=True``. A network that has these very modules
    already stays as it is.

    Args:
        model: A network of the same class as the one that was written down.
        record: What `attachment` returned.
        example: One batch, as for `attach`. Made up where it is not given.

    Returns:
        The model itself.

    Raises:
        CorruptFileError: If the record was changed, or is none.
        CheckpointError: If the network cannot take what it says, or has other modules already.
    """
    said = _opened(record)
    if attached(model):
        if attachment(model) == dict(record):
            return model
        raise CheckpointError(
            f"{type(model).__name__} has other modules attached than the attachment lists. Give a "
            "network without any, or `stiffnet.detach` them first."
        )
    try:
        with torch.random.fork_rng(devices=[]):
            for call in said.modules:
                options = {"start": call.start, "example": example, **call.options}
                attach(model.get_submodule(call.inside), call.module, where=call.at, **options)
        if attachment(model) != dict(record):
            raise StepError("the modules came to sit elsewhere, or have other parameters")
    except (StiffnetError, AttributeError, TypeError) as error:
        for inside in {call.inside for call in said.modules}:
            with suppress(StepError, AttributeError):  # nothing was attached there, or it is not
                detach(model.get_submodule(inside))
        raise CheckpointError(
            f"What was attached cannot be attached to this {type(model).__name__} again: "
            f"{str(error).rstrip('.')}. Give a network of the class and size that it was attached "
            "to, with the same modules registered."
        ) from error
    return model


def _calls(model: nn.Module) -> dict[tuple[str, int], list[tuple[Memory, Attachment]]]:
    """What sits in a network, and how it came there, by the network inside and call of `attach`."""
    calls = defaultdict(list)
    for sits in attached(model):
        module = model.get_submodule(sits.name)
        memory = memory_of(module)
        if memory is None or not memory.module:
            raise StepError(
                f"{sits.name!r} ({type(module).__name__}) has no name to write down. Give the "
                "class one with `stiffnet.register_attention`, and attach it by that."
            )
        replaced = getattr(module, "replaces_norm", False)
        block = sits.name if replaced else sits.name.rpartition(".")[0]
        if not f".{block}".endswith(f".{memory.block}"):
            raise StepError(
                f"{sits.name!r} was attached in {memory.block!r} and has been moved since. Attach "
                "to the network as it is now."
            )
        inside = block.removesuffix(memory.block).rstrip(".")
        calls[inside, memory.call].append((memory, sits))
    return dict(sorted(calls.items(), key=lambda call: call[0]))


def _written(inside: str, call: list[tuple[Memory, Attachment]]) -> _Modules:
    first, _ = call[0]
    try:
        options = json.loads(json.dumps(dict(first.options), allow_nan=False))
        if options != dict(first.options):
            raise ValueError(f"JSON makes {options} of {dict(first.options)}")
    except (TypeError, ValueError) as error:
        raise StepError(
            f"The options of {first.module!r} cannot be written down: {error}. Give plain numbers, "
            "words, lists, and dictionaries by words."
        ) from error
    return _Modules(
        inside=inside,
        module=first.module,
        options=options,
        start=first.start,
        at=[name for memory, _ in call for name in memory.at],
        names=[sits.name for _, sits in call],
        parameters=sum(sits.parameters for _, sits in call),
    )


def _opened(record: object) -> _File:
    try:
        if not isinstance(record, Mapping):
            raise ValueError(f"it is a {type(record).__name__}")
        raw = json.dumps(dict(record), allow_nan=False).encode()
        return fitted(RESULT.opened(raw, FORMAT), _File)
    except (TypeError, ValueError, RecursionError) as error:
        raise CorruptFileError(
            f"This is not an attachment as it was written down: {error}. Give what "
            "`stiffnet.attachment` returned, unchanged."
        ) from error
