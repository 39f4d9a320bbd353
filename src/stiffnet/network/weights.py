"""Weights from a file of any origin into a network: all of them or none, and never code.

What a file is, its first bytes say; its suffix does not matter. safetensors and torch's zip
checkpoints are read (the latter as tensors only, after a check of every part's sum), everything
else is refused.
"""

import json
import os
import pickle
import pickletools
import re
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from stiffnet.errors import CheckpointError, CorruptFileError, StorageError, UnsafeFileError
from stiffnet.network.model_folder import FOLDED, ORIGIN, same_tensors
from stiffnet.words import few, first_line

WRAPPERS = ("state_dict", "model", "model_state_dict", "state_dict_ema", "model_ema")
STATISTICS = ".running_var"  # of a norm
GATE = ".step_size"  # in the names of everything that `attach` puts into a network
OTHER_NAMES = (("downsample", "shortcut"),)  # what the ASR authors' networks call it, and ours
AUTHORS_GATE = ".attention_module."  # in the names of the ASR authors' modules
PREFIXES = ("module", "_orig_mod")  # what DDP and torch.compile put before every name
DEEPEST_WRAPPER = 4  # a checkpoint may contain itself
SHOWN = 4  # keys of one kind in an error message
SNIFFED = 2**20  # bytes
LONGEST_HEADER = 100_000_000  # bytes, by the safetensors format


def load_weights(model: nn.Module, path: str | os.PathLike[str]) -> dict[str, str]:
    """Load the weights in `path` into `model`, or raise and leave it as it was.

    Wrappers such as ``{"state_dict": ...}`` and name parts left by DDP and `torch.compile` are
    taken off. A tensor that `model` has under several names is needed under one of them only, and
    batch-norm counters may be missing, as in torch itself. Where the names in the file do not fit,
    and would all fit if what it calls ``downsample`` were called ``shortcut``, they are renamed:
    so the ASR authors' files go into our ResNets.

    Returns:
        The parts of names that were renamed, and into what; usually nothing.

    Raises:
        CheckpointError: If the tensors are not those of `model`; it lists them.
        UnsafeFileError: If the file holds a pickle that could run code. It is not run.
        CorruptFileError: If the file is damaged or is no weights file.
        StorageError: If the file cannot be read.
    """
    source = Path(path)
    given = _renamed(_unwrapped(read_weights(source), source), model, source)
    wanted = {
        name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)
    }
    complete = _completed(given, wanted)
    renamed: dict[str, str] = {}
    if complete.keys() != wanted.keys():
        complete, renamed = _under_other_names(given, wanted) or (complete, renamed)
    missing = [name for name in wanted if name not in complete]
    unexpected = [name for name in complete if name not in wanted]
    unfit = [
        f"{name} ({_shape(complete[name])} for {_shape(value)})"
        for name, value in wanted.items()
        if name in complete and not _fits(complete[name], value)
    ]
    if missing or unexpected or unfit:
        raise CheckpointError(
            f"{source} does not fit {type(model).__name__}{_said(renamed)}: "
            + "; ".join(
                f"{len(names)} {kind}: {few(names, SHOWN)}"
                for kind, names in (
                    ("missing", missing),
                    ("unexpected", unexpected),
                    ("of another shape or kind", unfit),
                )
                if names
            )
            + f". Nothing was loaded; {_hint(missing, unexpected, folded=_is_folded(source))}."
        )
    try:
        model.load_state_dict(complete, strict=True)
    except RuntimeError as error:  # a model with rules of its own
        raise CheckpointError(
            f"{source} does not fit {type(model).__name__}: {error}. Give the file of this model."
        ) from error
    return renamed


def _said(renamed: Mapping[str, str]) -> str:
    pairs = ", ".join(f"{theirs} is renamed to {ours}" for theirs, ours in renamed.items())
    return pairs and f", even if {pairs}"


def _hint(missing: Iterable[str], unexpected: Iterable[str], *, folded: bool) -> str:
    """Say what the file looks like, where its names tell, or what it says itself."""
    lacks, adds = ([f".{name}" for name in names] for names in (missing, unexpected))
    if any(AUTHORS_GATE in name for name in adds):
        return (
            "it looks like one of the ASR authors' networks with attention, whose modules are not "
            "read; of theirs, give the file of a network without attention"
        )
    if any(GATE in name for name in adds):
        return "it looks like a network with attention, so give its `attention` too"
    if any(GATE in name for name in lacks):
        if folded:
            return "it is a folded network, with its attention in it, so leave `attention` out"
        return "it looks like the network without attention, so leave `attention` out"
    merged = any(name.endswith(STATISTICS) for name in lacks)
    if folded or (merged and adds and all(name.endswith(".bias") for name in adds)):
        kind = "is" if folded else "looks like"
        return f"it {kind} a folded network with merged layers, so open the folder that it is in"
    if lacks and any(name.endswith(STATISTICS) for name in adds):
        return "it looks like a network that is not folded, so load it into a fresh one"
    return "give the file of this model, or this model's number of classes and channels"


def _is_folded(path: Path) -> bool:
    """Whether the file says of itself that its network is folded."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            said = json.loads((file.metadata() or {}).get(ORIGIN, "{}"))
    except (safetensors.SafetensorError, ValueError, RecursionError, OSError):
        return False  # a torch checkpoint, for one
    return isinstance(said, dict) and said.get("form") == FOLDED


def read_weights(path: str | os.PathLike[str]) -> Mapping[str, object]:
    """Return what a safetensors or torch zip file holds, on the CPU, without running any of it.

    Raises:
        UnsafeFileError: If the file holds a pickle that could run code. It is not run.
        CorruptFileError: If the file is damaged or is no weights file.
        StorageError: If the file cannot be read.
    """
    source = Path(path)
    if source.is_dir():
        raise CheckpointError(
            f"{source} is a folder, not a weights file. Give the file inside it; "
            "a model folder of ours is given as the model itself."
        )
    try:
        with source.open("rb") as stream:
            start = stream.read(SNIFFED)
    except OSError as error:
        raise StorageError(
            f"{source} could not be read: {error.strerror or error}. Check the path."
        ) from error
    if start.startswith(b"PK\x03\x04"):
        return _read_zip(source)
    if not _is_safetensors(start) and _is_pickle(start):
        raise UnsafeFileError(
            f"{source} is a bare pickle, which can run code when it is opened, so it was not "
            "opened. Where you trust it, save the state dict as safetensors or with `torch.save`."
        )
    return _read_safetensors(source)


def _is_safetensors(start: bytes) -> bool:
    return start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= LONGEST_HEADER


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
            "Fetch it again; safetensors files and torch checkpoints can be read."
        ) from error


def _read_zip(path: Path) -> Mapping[str, object]:
    _check_zip(path)
    try:
        content = _load_tensors(path)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        what = f"{found[1]}, " if found else ""
        raise UnsafeFileError(
            f"{path} holds Python objects, {what}which could run code, so it was not opened. "
            "Save the state dict alone where you trust the file."
        ) from error
    except Exception as error:
        raise CorruptFileError(
            f"{path} is damaged: {first_line(error)}. Fetch it again."
        ) from error
    if not isinstance(content, dict):
        raise CheckpointError(
            f"{path} holds a {type(content).__name__}, not a state dict. "
            "Save the model's `state_dict()`."
        )
    return content


def _load_tensors(path: Path) -> object:
    """`torch.load` for tensors and plain values; it never looks at the suffix here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on the writer's choice of protocol, for one
        if not path.name.endswith(".safetensors"):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        with path.open("rb") as stream:  # a path would go to safetensors by its suffix
            return torch.load(stream, map_location="cpu", weights_only=True)


def _check_zip(path: Path) -> None:
    """Refuse archives that are damaged, packed, scripted, or larger inside than outside."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
            larger = sum(entry.file_size for entry in entries) > path.stat().st_size
            broken = None if packed or larger else archive.testzip()
    except Exception as error:  # a hostile archive finds many ways
        raise CorruptFileError(
            f"{path} is cut short or damaged: {first_line(error)}. Fetch it again."
        ) from error
    names = [entry.filename for entry in entries]
    if any(name.endswith("/constants.pkl") for name in names):
        raise UnsafeFileError(
            f"{path} is a TorchScript archive, which holds code, so it was not opened. "
            "Save the state dict alone."
        )
    if packed or larger or not any(name.endswith("data.pkl") for name in names):
        raise CorruptFileError(
            f"{path} is a zip archive, but not one that `torch.save` wrote. Give a weights file."
        )
    if broken is not None:
        raise CorruptFileError(
            f"{path} is damaged: its part {broken} fails its checksum. Fetch it again."
        )


def _unwrapped(content: Mapping[str, object], path: Path) -> dict[str, object]:
    for _ in range(DEEPEST_WRAPPER):
        inner = next((content[key] for key in WRAPPERS if isinstance(content.get(key), dict)), None)
        if not isinstance(inner, dict):
            break
        content = inner
    tensors = [name for name, value in content.items() if isinstance(value, Tensor)]
    if not tensors or not all(isinstance(name, str) for name in content):
        raise CheckpointError(
            f"{path} holds no state dict; at its top are these keys: "
            f"{few(map(str, content), SHOWN)}. Save the model's `state_dict()`."
        )
    return dict(content)


def _renamed(content: Mapping[str, object], model: nn.Module, path: Path) -> dict[str, object]:
    known = model.state_dict().keys()
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


def _completed(given: Mapping[str, object], wanted: Mapping[str, Tensor]) -> dict[str, object]:
    """Add what `given` need not hold: other names of a tensor, and batch-norm counters."""
    same = same_tensors(wanted)
    held = {same[name]: value for name, value in given.items() if name in same}
    complete = dict(given)
    for name, value in wanted.items():
        if name not in complete and same[name] in held:
            complete[name] = held[same[name]]
        elif name not in complete and name.endswith("num_batches_tracked"):
            complete[name] = value
    return complete


def _under_other_names(
    given: Mapping[str, object], wanted: Mapping[str, Tensor]
) -> tuple[dict[str, object], dict[str, str]] | None:
    """Rename a part of the names, if then they are those of the network, all of them.

    Returns:
        The tensors under the network's names, and what was renamed; None if that does not help.
    """
    for theirs, ours in OTHER_NAMES:
        names = {
            name: ".".join(ours if part == theirs else part for part in name.split("."))
            for name in given
        }
        if len(set(names.values())) < len(names):  # the file has both names
            continue
        complete = _completed({names[name]: value for name, value in given.items()}, wanted)
        if complete.keys() == wanted.keys():
            return complete, {theirs: ours}
    return None


def _fits(given: object, wanted: Tensor) -> bool:
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
    if not isinstance(value, Tensor):
        return type(value).__name__
    kind = "" if value.is_floating_point() else f" {value.dtype}".replace("torch.", "")
    return f"{list(value.shape)}{kind}"
