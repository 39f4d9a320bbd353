"""Weights from a file of any origin into a network: all of them or none, and never code.

What a file is, its first bytes say; its suffix does not matter. safetensors, torch's checkpoints in
both formats (as tensors only), indices of several files and folders with one of these are read,
everything else is refused.
"""

import json
import os
import pickletools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeGuard

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from stiffnet.errors import CheckpointError, CorruptFileError, UnsafeFileError
from stiffnet.files import read_file
from stiffnet.network.mismatch import Fit, head_outputs, likely_cause
from stiffnet.network.model_folder import FOLDED, ORIGIN, same_tensors
from stiffnet.network.shards import read_shards, weights_in_folder
from stiffnet.network.state_dicts import StateDict, chosen_state_dict
from stiffnet.network.tensors_only import Passed
from stiffnet.network.torch_files import ZIP, is_legacy, read_legacy, read_zip
from stiffnet.words import few, first_line, listed

THEIRS, OURS = "downsample", "shortcut"  # what the ASR authors' networks call it, and ours
PREFIXES = ("module", "_orig_mod")  # what DDP and torch.compile put before every name
DEEPEST_PREFIX = 3  # parts of a name that a checkpoint puts before those of its network
SHOWN = 4  # keys of one kind in an error message
SNIFFED = 2**20  # bytes
LONGEST_HEADER = 100_000_000  # bytes, by the safetensors format

Facts = dict[str, str]


def load_weights(model: nn.Module, path: str | os.PathLike[str], *, key: str = "") -> Facts:
    """Load the weights in `path` into `model`, or raise and leave it as it was.

    Wrappers such as ``{"state_dict": ...}`` and name parts left by DDP and `torch.compile` are
    taken off, and so is what stands before all names of the network, as ``model.`` in Lightning's
    checkpoints; what then is left over belongs to other modules. A tensor that `model` has under
    several names is needed under one of them only, and batch-norm counters may be missing, as in
    torch itself. Where the names in the file do not fit, and would all fit if what it calls
    ``downsample`` were called ``shortcut``, they are renamed: so the ASR authors' files go into our
    ResNets.

    Args:
        model: The network.
        path: A weights file, an index of several, or a folder with one of these.
        key: Which of several state dicts of a checkpoint, such as ``"state_dict_ema"``, or of
            several networks in a state dict, such as ``"teacher"``.

    Returns:
        What is unusual: ``key`` that was taken and ``other_keys`` that there were, ``prefix`` that
        was taken off and what was ``left_out`` beside it, and what was ``renamed``. Usually
        nothing.

    Raises:
        CheckpointError: If the tensors are not those of `model`; it lists them.
        UnsafeFileError: If the file holds a pickle that could run code. It is not run.
        CorruptFileError: If the file is damaged or is no weights file.
        StorageError: If the file cannot be read.
    """
    return fill(model, read_state_dict(path, key=key))


def read_state_dict(path: str | os.PathLike[str], *, key: str = "") -> StateDict:
    """Read a checkpoint, and return the state dict that `key` names, or that is usually meant."""
    source = Path(path)
    content = read_weights(source)
    return replace(chosen_state_dict(content, source, key), of=_said_network(content, source))


def _said_network(content: Mapping[str, object], path: Path) -> str:
    """Name the network that timm's checkpoint, or folder, says it is of; nothing if it does not."""
    said = content.get("arch")
    if said is None and (path / "config.json").is_file():
        try:
            said = json.loads((path / "config.json").read_bytes()).get("architecture")
        except (OSError, ValueError, RecursionError, AttributeError):
            return ""
    return said if isinstance(said, str) else ""


def fill(model: nn.Module, state: StateDict, *, optional: Collection[str] = ()) -> Facts:
    """Do what `load_weights` does, with a state dict that was read.

    It may lack the tensors of `optional` names, which then stay as they are.
    """
    fit = _best(model, state, optional)
    _refuse_two_values(model, fit)
    if not fit.exact:
        raise CheckpointError(_refusal(model, fit))
    try:
        model.load_state_dict(dict(fit.given), strict=True)
    except RuntimeError as error:  # a model with rules of its own
        raise CheckpointError(
            f"{state.path} does not fit {type(model).__name__}: {error}. Give the file of this "
            "model."
        ) from error
    return _facts(fit)


def outputs_of(model: nn.Module, state: StateDict) -> int | None:
    """How many outputs the network of a state dict has, if `model` differs in that alone."""
    fit = _best(model, state)
    return head_outputs(model, fit) if fit.named else None


def _facts(fit: Fit) -> Facts:
    told = {}
    if fit.state.others:
        told["key"] = fit.state.key or "none"
        told["other_keys"] = ", ".join(other.key for other in fit.state.others)
    if fit.prefix:
        told["prefix"] = f"{fit.prefix}."
    if fit.left_out:
        groups = dict.fromkeys(name.split(".")[0] for name in fit.left_out)
        told["left_out"] = f"{len(fit.left_out)} of {listed(list(groups), SHOWN)}"
    if fit.renamed:
        told["renamed"] = f"{THEIRS} to {OURS}"
    return told


def _refuse_two_values(model: nn.Module, fit: Fit) -> None:
    """Refuse a file that has two values for what is one tensor in the network."""
    for name, first in same_tensors(fit.wanted).items():
        one, other = fit.given.get(first), fit.given.get(name)
        wanted = fit.wanted[first]
        if name == first or not (_fits(one, wanted) and _fits(other, wanted)):
            continue
        if not torch.equal(one.nan_to_num(), other.nan_to_num()):
            raise CheckpointError(
                f"{fit.state.path} holds different values under {first} and {name}, which are one "
                f"tensor in this {type(model).__name__}. Build the network without sharing "
                "them, or keep one of the two in the file."
            )


def _best(model: nn.Module, state: StateDict, optional: Collection[str] = ()) -> Fit:
    """How a checkpoint fits a network, or comes nearest; of several ways the user must choose."""
    wanted = {k: v for k, v in model.state_dict().items() if isinstance(v, Tensor)}
    fit = _of_prefixes(state, wanted, optional)
    if state.certain or not state.others:
        return fit
    fits = [fit, *(_of_prefixes(other, wanted, optional) for other in state.others)]
    good = [each for each in fits if each.exact]
    if len(good) > 1:
        raise _choose(state.path, [each.state.key for each in good])
    if not good:
        return fit
    [only] = good
    rest = tuple(each for each in (state, *state.others) if each.key != only.state.key)
    return replace(only, state=replace(only.state, others=rest))


def _of_prefixes(
    state: StateDict, wanted: Mapping[str, Tensor], optional: Collection[str] = ()
) -> Fit:
    """Read the names as they are, or without what stands before all that the network needs."""
    plain = _read_as(state, wanted, "", optional)
    if plain.named:
        return plain
    starts = {
        ".".join(name.split(".")[:depth])
        for name in state.values
        for depth in range(1, min(DEEPEST_PREFIX, name.count(".")) + 1)
    }
    ways = [_read_as(state, wanted, start, optional) for start in sorted(starts)]
    good = {way.left_out: way for way in ways if way.named}  # "a." and "a.module." are the same
    fitting = [way for way in good.values() if way.exact] or list(good.values())
    if len(fitting) > 1:
        raise _choose(state.path, [way.prefix for way in fitting])
    if fitting:
        return fitting[0]
    return max([plain, *ways], key=lambda way: len(way.given.keys() & wanted.keys()))


def _choose(path: Path, keys: Sequence[str]) -> CheckpointError:
    return CheckpointError(
        f"{path} holds several networks that fit, under {listed(keys)}. Choose one with "
        f"`--weights-key {keys[0]}`, in Python `key={keys[0]!r}`."
    )


def _read_as(
    state: StateDict, wanted: Mapping[str, Tensor], prefix: str, optional: Collection[str]
) -> Fit:
    start = f"{prefix}." if prefix else ""
    values = {k.removeprefix(start): v for k, v in state.values.items() if k.startswith(start)}
    given = _without_wrappers(values, wanted, state.path)
    complete = _completed(given, wanted, optional)
    renamed = _under_our_names(given, wanted) if complete.keys() != wanted.keys() else None
    complete = renamed or complete
    return Fit(
        state,
        complete,
        wanted,
        missing=tuple(name for name in wanted if name not in complete),
        unexpected=tuple(name for name in complete if name not in wanted),
        unfit=tuple(k for k, v in wanted.items() if k in complete and not _fits(complete[k], v)),
        prefix=prefix,
        left_out=tuple(name for name in state.values if not name.startswith(start)),
        renamed=bool(renamed),
    )


def _refusal(model: nn.Module, fit: Fit) -> str:
    """Say what does not fit, and why as far as it is known."""
    state = fit.state
    changes = [f"{THEIRS} is renamed to {OURS}"] if fit.renamed else []
    if fit.prefix:
        changes.append(f"{fit.prefix}. is taken off its names")
    unfit = [
        f"{name} ({_shape(fit.given[name])} for {_shape(fit.wanted[name])})" for name in fit.unfit
    ]
    parts = [
        f"{len(names)} {kind}: {few(names, SHOWN)}"
        for kind, names in (
            ("missing", fit.missing),
            ("unexpected", fit.unexpected),
            ("of another shape or kind", unfit),
        )
        if names
    ]
    cause = likely_cause(model, fit, folded=_is_folded(state.path))
    for other in reversed(state.others):
        if _of_prefixes(other, fit.wanted).exact:
            cause = f"what is under {other.key} fits, so give `--weights-key {other.key}`"
    which = f", under {state.key}," if state.others and state.key else ""
    return (
        f"{state.path}{which} does not fit {type(model).__name__}"
        + (f", even if {', '.join(changes)}" if changes else "")
        + f": {'; '.join(parts)}. Nothing was loaded; {cause}."
    )


def _is_folded(path: Path) -> bool:
    """Whether the file says of itself that its network is folded."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            said = json.loads((file.metadata() or {}).get(ORIGIN, "{}"))
    except (safetensors.SafetensorError, ValueError, RecursionError, OSError):
        return False  # a torch checkpoint, for one
    return isinstance(said, dict) and said.get("form") == FOLDED


def read_weights(path: str | os.PathLike[str]) -> Mapping[str, object]:
    """Return what a weights file, or several by their index, hold: on the CPU, and never run.

    Raises:
        UnsafeFileError: If the file holds a pickle that could run code. It is not run.
        CorruptFileError: If the file is damaged or is no weights file.
        StorageError: If the file cannot be read.
    """
    source = Path(path)
    if source.is_dir():
        return read_weights(weights_in_folder(source))
    start = read_file(source, "Check the path.", SNIFFED)
    if start.startswith(ZIP):
        return _mapping(read_zip(source), source)
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= LONGEST_HEADER:
        return _read_safetensors(source)
    if is_legacy(start):
        return _mapping(read_legacy(source), source)
    if start.lstrip()[:1] == b"{":
        return read_shards(source, read_weights)
    if _is_pickle(start):
        raise UnsafeFileError(
            f"{source} is a bare pickle, which can run code when it is opened, so it was not "
            "opened. Where you trust it, save the state dict as safetensors or with `torch.save`."
        )
    return _read_safetensors(source)


def _mapping(content: object, path: Path) -> Mapping[str, object]:
    if not isinstance(content, dict):
        kind = content.kind if isinstance(content, Passed) else type(content).__name__
        raise CheckpointError(
            f"{path} holds a {kind}, not a state dict. Save the model's `state_dict()`."
        )
    return content


def _is_pickle(start: bytes) -> bool:
    """Whether the bytes are a pickle's; reads its operations and runs none."""
    if start[:1] == b"\x80" and start[1:2] <= b"\x05":  # the mark of protocols 2 to 5
        return True
    try:
        return sum(1 for _ in pickletools.genops(start)) > 1
    except Exception:  # of any kind: it is not a pickle
        return False


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(path)
    except (safetensors.SafetensorError, ValueError, KeyError, RuntimeError, OSError) as error:
        raise CorruptFileError(
            f"{path} is damaged or not a weights file: {first_line(error)}. "
            "Download it again; safetensors files and torch checkpoints can be read."
        ) from error


def _without_wrappers(
    content: Mapping[str, object], known: Mapping[str, Tensor], path: Path
) -> dict[str, object]:
    result: dict[str, object] = {}
    for name, value in content.items():
        parts = [part for part in name.split(".") if part not in PREFIXES]
        new = name if name in known else ".".join(parts)
        if new in result:
            raise CheckpointError(
                f"{path} holds {new!r} twice, with and without a prefix. Keep one of the two."
            )
        result[new] = value
    return result


def _completed(
    given: Mapping[str, object], wanted: Mapping[str, Tensor], optional: Collection[str] = ()
) -> dict[str, object]:
    """Add what `given` need not hold: other names of a tensor, counters, what is optional."""
    same = same_tensors(wanted)
    held = {same[name]: value for name, value in given.items() if name in same}
    complete = dict(given)
    for name, value in wanted.items():
        if name not in complete and same[name] in held:
            complete[name] = held[same[name]]
        elif name not in complete and (name.endswith("num_batches_tracked") or name in optional):
            complete[name] = value
    return complete


def _under_our_names(
    given: Mapping[str, object], wanted: Mapping[str, Tensor]
) -> dict[str, object] | None:
    """Tensors under names in which a part of theirs is ours, if then all of them fit."""
    renamed = {
        ".".join(OURS if part == THEIRS else part for part in name.split(".")): value
        for name, value in given.items()
    }
    complete = _completed(renamed, wanted)
    both = len(renamed) < len(given)  # the file has both names
    return None if both or complete.keys() != wanted.keys() else complete


def _fits(given: object, wanted: Tensor) -> TypeGuard[Tensor]:
    return (
        isinstance(given, Tensor)
        and given.layout == torch.strided
        and given.device.type == "cpu"
        and not given.is_quantized
        and given.shape == wanted.shape
        and given.is_floating_point() == wanted.is_floating_point()
        and given.is_complex() == wanted.is_complex()
    )


def _shape(value: object) -> str:
    if isinstance(value, Passed):
        return value.kind
    if not isinstance(value, Tensor):
        return type(value).__name__
    kind = "" if value.is_floating_point() else f" {value.dtype}".replace("torch.", "")
    return f"{list(value.shape)}{kind}"
