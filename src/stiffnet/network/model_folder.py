"""A model folder of ours: the weights, and a manifest that says what they are and seals them.

``weights.safetensors`` holds the tensors, ``MANIFEST.json`` (written last) everything that is
needed to use them, with the size and the SHA-256 of each part and of itself: neither torch nor
safetensors would notice a flipped bit. Nothing in the folder is pickle.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor, nn

from stiffnet.data.images import Preparation
from stiffnet.errors import CheckpointError, CorruptFileError, StorageError
from stiffnet.files import atomic_write, atomic_write_all
from stiffnet.provenance import version_of

MANIFEST = "MANIFEST.json"
WEIGHTS = "weights.safetensors"
TRAIN, FOLDED = "train", "folded"  # forms of a network
ORIGIN = "stiffnet"  # in the metadata of folded weights: JSON with form and `made_by`
FORMAT = 1
LARGEST_MANIFEST = 16 * 2**20  # bytes; twenty thousand class names take half a megabyte

KEYS = {
    "format", "name", "options", "form", "classes", "preparation", "made_by", "versions", "parts",
}  # fmt: skip

Fact = str | int | float | bool | None  # what `options` and `made_by` may hold


@dataclass(frozen=True)
class ModelFolder:
    """What the manifest of a verified folder says."""

    path: Path
    name: str
    options: Mapping[str, Fact]
    classes: tuple[str, ...]
    preparation: Preparation
    form: str
    made_by: Mapping[str, Fact]
    versions: Mapping[str, str]
    parts: tuple[str, ...]

    @property
    def weights(self) -> Path:
        """The file with the tensors."""
        return self.path / WEIGHTS


def write_folder(
    path: str | os.PathLike[str],
    model: nn.Module | Mapping[str, Tensor],
    *,
    name: str,
    options: Mapping[str, Fact],
    classes: Sequence[str],
    preparation: Preparation,
    made_by: Mapping[str, Fact],
    form: str = TRAIN,
    parts: Mapping[str, bytes] | None = None,
) -> Path:
    """Write `model` to the folder `path`: the weights first, the manifest last.

    Each file is replaced in one go, and a folder without its manifest is not a model. A crash
    between the two files of a folder that held another model leaves one that `read_folder`
    refuses, never one that mixes the two.

    Args:
        path: Folder to write to; made if it is not there.
        model: Network whose parameters and buffers are kept, or its state dict. Shared tensors
            are stored once.
        name: What `stiffnet.create_model` builds it from, such as ``"resnet20_cifar"``.
        options: Constructor options, such as ``{"num_classes": 10}``.
        classes: Name of each class, in the order of the logits.
        preparation: What the network expects of its images.
        made_by: Where the weights come from: command, data, seed, epochs, accuracy.
        form: ``"train"``, as the backbone is trained, or ``"folded"``. Folded weights also say so
            themselves, and what made them, in the metadata of their file; those of a run depend
            on nothing but their numbers.
        parts: Further files of the folder by name; they are sealed like the weights.

    Raises:
        CheckpointError: If something given cannot be written down, such as a NaN.
        StorageError: If a file cannot be written.
    """
    folder = Path(path)
    content = {
        "format": FORMAT,
        "name": name,
        "options": dict(options),
        "form": form,
        "classes": list(classes),
        "preparation": {
            "input_size": list(preparation.input_size),
            "mean": list(preparation.mean),
            "std": list(preparation.std),
            "crop": preparation.crop,
            "interpolation": preparation.interpolation,
        },
        "made_by": dict(made_by),
        "versions": {package: version_of(package) for package in ("stiffnet", "torch", "timm")},
    }
    state = model.state_dict() if isinstance(model, nn.Module) else model
    try:
        packed = safetensors.torch.save(stored_tensors(state), _origin(form, made_by))
        files = {WEIGHTS: packed, **(parts or {})}
        content["parts"] = {
            part: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for part, data in files.items()
        }
        _interpret(folder, content)  # what we would refuse to read we do not write
        sealed = _text({**content, "seal": _seal(content)})
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"The model cannot be written to {folder}, because of its manifest: {error}. "
            "Names must be text, and facts plain text or finite numbers."
        ) from error
    atomic_write_all({folder / part: data for part, data in files.items()})
    atomic_write(folder / MANIFEST, sealed)
    return folder


def read_folder(path: str | os.PathLike[str]) -> ModelFolder:
    """Verify a folder that `write_folder` wrote, and return what its manifest says.

    Raises:
        CheckpointError: If the folder has no manifest.
        CorruptFileError: If a part is missing, or differs from what was written in a single bit.
        StorageError: If the folder or a file in it cannot be read.
    """
    folder = Path(path)
    content = _read_manifest(folder)
    try:
        result, parts = _interpret(folder, content)
    except ValueError as error:
        raise _damaged(folder / MANIFEST, f"is not a manifest of ours: {error}") from error
    for part, (size, digest) in parts.items():
        _verify(folder, part, size, digest)
    return result


def same_tensors(state: Mapping[str, Tensor]) -> dict[str, str]:
    """Map each name in a state dict to the first name that holds the very same tensor.

    >>> import torch
    >>> one = torch.ones(2)
    >>> same_tensors({"a": one, "b": one, "c": torch.ones(2)})
    {'a': 'a', 'b': 'a', 'c': 'c'}
    """
    first: dict[object, str] = {}
    result = {}
    for name, tensor in state.items():
        where: object = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        result[name] = first.setdefault(where if tensor.data_ptr() else name, name)
    return result


def stored_tensors(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return each tensor of `state` once, on the CPU, none of them overlapping another."""
    own = {name for name, kept in same_tensors(state).items() if name == kept}
    return {name: state[name].detach().cpu().contiguous().clone() for name in sorted(own)}


def _origin(form: str, made_by: Mapping[str, Fact]) -> dict[str, str] | None:
    """Metadata for the weights: a single entry, as safetensors writes several in random order."""
    if form == TRAIN:
        return None
    return {ORIGIN: json.dumps({"form": form, "made_by": dict(made_by)}, allow_nan=False)}


def _text(content: Mapping[str, Any]) -> str:
    """The one way in which we write a manifest."""
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _seal(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(_text(content).encode()).hexdigest()


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not folder.is_dir():
        raise StorageError(f"{folder} is not a folder. Give the one that a model was written to.")
    if not path.is_file():
        raise CheckpointError(
            f"{folder} holds no {MANIFEST}, so it is no model folder or was never finished. "
            f"A model folder of ours holds {WEIGHTS} and {MANIFEST}; write it again."
        )
    try:
        with path.open("rb") as stream:
            raw = stream.read(LARGEST_MANIFEST + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        content = json.loads(raw[:LARGEST_MANIFEST])
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "is not as it was written: it is no JSON") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        number = content.get("format") if isinstance(content, dict) else None
        raise _damaged(path, f"has format {number!r}, and this version reads format {FORMAT}")
    if not _is_sealed(content, raw):
        raise _damaged(path, "is not as it was written: its seal is broken")
    return {key: value for key, value in content.items() if key != "seal"}


def _is_sealed(content: Mapping[str, Any], raw: bytes) -> bool:
    """Whether these are the bytes that we wrote, and not other bytes that mean the same."""
    rest = {key: value for key, value in content.items() if key != "seal"}
    try:
        return raw == _text({**rest, "seal": _seal(rest)}).encode()
    except ValueError:  # NaN or infinity, which we never write
        return False


def _interpret(
    folder: Path, content: Mapping[str, Any]
) -> tuple[ModelFolder, dict[str, tuple[int, str]]]:
    """Turn the manifest's values into ours; a ValueError says which of them is of another kind."""
    if content.keys() != KEYS:
        raise ValueError(f"it lacks or adds {', '.join(map(repr, sorted(content.keys() ^ KEYS)))}")
    for key in ("name", "form"):
        _require(key, isinstance(content[key], str) and content[key] != "")
    _require("classes", _is_list(content["classes"], str))
    for key in ("options", "made_by", "versions"):
        _require(key, _is_table(content[key]))
    _require("versions", all(isinstance(text, str) for text in content["versions"].values()))
    parts = _parts(content["parts"])
    said = ModelFolder(
        path=folder,
        name=content["name"],
        options=content["options"],
        classes=tuple(content["classes"]),
        preparation=_preparation(content["preparation"]),
        form=content["form"],
        made_by=content["made_by"],
        versions=content["versions"],
        parts=tuple(parts),
    )
    return said, parts


def _preparation(value: Any) -> Preparation:
    _require("preparation", isinstance(value, dict))
    given = {"crop": 1.0, "interpolation": "bilinear"} | value
    _require("preparation", given.keys() == {f.name for f in fields(Preparation)})
    crop, interpolation = given["crop"], given["interpolation"]
    _require("crop", isinstance(crop, int | float) and 0 < crop <= 1)
    _require("interpolation", isinstance(interpolation, str))
    size, mean, std = given["input_size"], given["mean"], given["std"]
    _require("input_size", _is_list(size, int) and len(size) == 3 and min(size) > 0)
    for key, numbers in (("mean", mean), ("std", std)):
        _require(key, _is_list(numbers, int, float) and len(numbers) == size[0])
        _require(key, all(map(math.isfinite, numbers)))
    _require("std", min(std) > 0)
    return Preparation((size[0], size[1], size[2]), tuple(mean), tuple(std), crop, interpolation)


def _parts(value: Any) -> dict[str, tuple[int, str]]:
    _require("parts", isinstance(value, dict) and WEIGHTS in value)
    result = {}
    for name, facts in value.items():
        if name in ("", ".", "..", MANIFEST) or any(sign in name for sign in "/\\\0"):
            raise ValueError(f"it names a part outside its folder, {name!r}")
        _require(name, isinstance(facts, dict) and facts.keys() == {"size", "sha256"})
        _require(name, isinstance(facts["size"], int) and isinstance(facts["sha256"], str))
        result[name] = (facts["size"], facts["sha256"])
    return result


def _verify(folder: Path, part: str, size: int, digest: str) -> None:
    path = folder / part
    if not path.is_file():
        raise _damaged(path, "is missing")
    if path.resolve().parent != folder.resolve():
        raise _damaged(path, "is a link that leaves the folder")
    try:
        actual = path.stat().st_size
        if actual != size:
            raise _damaged(path, f"has {actual:,} bytes where {size:,} were written")
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from error
    if found != digest:
        raise _damaged(path, "is not as it was written: its SHA-256 differs")


def _is_list(value: object, *kinds: type) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, kinds) and not isinstance(item, bool) for item in value
    )


def _is_table(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(key, str) and (fact is None or isinstance(fact, str | int | float))
        for key, fact in value.items()
    )


def _require(key: str, holds: bool) -> None:
    if not holds:
        raise ValueError(f"{key!r} has a value of the wrong kind")


def _damaged(path: Path, how: str) -> CorruptFileError:
    return CorruptFileError(f"{path} {how}. Copy the folder again, or write the model anew.")


def _unreadable(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"{path} could not be read: {error.strerror or error}. Check the disk and the permissions."
    )
