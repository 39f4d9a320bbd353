"""A model folder of ours: the weights, and a manifest that says what they are and seals them.

``weights.safetensors`` holds the tensors, ``MANIFEST.json`` (written last) everything that is
needed to use them, with the size and the SHA-256 of each part and of itself: neither torch nor
safetensors would notice a flipped bit. Nothing in the folder is pickle.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import safetensors.torch
from msgspec import Meta, Struct
from torch import Tensor, nn

from stiffnet.data.images import Preparation
from stiffnet.errors import CheckpointError, CorruptFileError, StorageError
from stiffnet.files import atomic_write, atomic_write_all, read_file
from stiffnet.provenance import version_of
from stiffnet.schema import fitted
from stiffnet.sealed import Seal

MANIFEST = "MANIFEST.json"
WEIGHTS = "weights.safetensors"
CHECK = "Check the disk and the permissions."
TRAIN, FOLDED = "train", "folded"  # forms of a network
ORIGIN = "stiffnet"  # in the metadata of folded weights: JSON with form and `made_by`
FORMAT: Literal[1] = 1
SEAL = Seal("seal", indent=2)
LARGEST_MANIFEST = 16 * 2**20  # bytes; twenty thousand class names take half a megabyte

Fact = str | int | float | bool | None  # what `options` and `made_by` may hold
Word = Annotated[str, Meta(min_length=1)]
Side = Annotated[int, Meta(ge=1)]
Positive = Annotated[float, Meta(gt=0)]


class Part(Struct, forbid_unknown_fields=True):
    """How a file of the folder is known again."""

    size: int
    sha256: str


class Prepared(Struct, forbid_unknown_fields=True):
    """A `Preparation` as the manifest has it; the first ones lack the last three."""

    input_size: tuple[Side, Side, Side]
    mean: tuple[float, ...]
    std: tuple[Positive, ...]
    crop: Annotated[float, Meta(gt=0, le=1)] = 1.0
    interpolation: str = "bilinear"
    crop_mode: str = "center"

    def __post_init__(self) -> None:
        if not len(self.mean) == len(self.std) == self.input_size[0]:
            raise ValueError("'mean' and 'std' do not have a number for each channel")
        Preparation(**msgspec.structs.asdict(self))  # it knows its modes


class Manifest(Struct, forbid_unknown_fields=True):
    """What ``MANIFEST.json`` holds beside its seal, in this order."""

    format: Literal[1]
    name: Word
    options: dict[str, Fact]
    form: Word
    classes: tuple[str, ...]
    preparation: Prepared
    made_by: dict[str, Fact]
    versions: dict[str, str]
    parts: dict[str, Part]

    def __post_init__(self) -> None:
        if WEIGHTS not in self.parts:
            raise ValueError(f"'parts' lacks {WEIGHTS!r}")
        for name in self.parts:
            if name in ("", ".", "..", MANIFEST) or any(sign in name for sign in "/\\\0"):
                raise ValueError(f"it names a part outside its folder, {name!r}")


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
    between the two files of a folder that held another model leaves one that `read_folder` refuses,
    never one that mixes the two.

    `create_model` builds the network from `name` and `options`. `classes` are in the order of the
    logits, `made_by` says where the weights come from: command, data, seed, epochs, accuracy.
    Tensors that are shared are stored once. Folded weights also say that they are, and what made
    them, in the metadata of their file; those of a run depend on nothing but their numbers. Further
    `parts` are sealed like the weights.

    Raises:
        CheckpointError: If something given cannot be written down, such as a NaN.
    """
    folder = Path(path)
    state = model.state_dict() if isinstance(model, nn.Module) else model
    try:
        packed = safetensors.torch.save(stored_tensors(state), _origin(form, made_by))
        files = {WEIGHTS: packed, **(parts or {})}
        content = msgspec.to_builtins(
            {
                "format": FORMAT,
                "name": name,
                "options": options,
                "form": form,
                "classes": classes,
                "preparation": asdict(preparation),
                "made_by": made_by,
                "versions": {each: version_of(each) for each in ("stiffnet", "torch", "timm")},
                "parts": {
                    part: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
                    for part, data in files.items()
                },
            }
        )
        fitted(content, Manifest)  # what we would refuse to read we do not write
        manifest = SEAL.text(content)
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"The model cannot be written to {folder}, because of its manifest: {error}. "
            "Names must be text, and facts plain text or finite numbers."
        ) from error
    atomic_write_all({folder / part: data for part, data in files.items()})
    atomic_write(folder / MANIFEST, manifest)
    return folder


def read_folder(path: str | os.PathLike[str]) -> ModelFolder:
    """Verify a folder that `write_folder` wrote, and return what its manifest says.

    Raises:
        CheckpointError: If the folder has no manifest.
        CorruptFileError: If a part is missing, or differs from what was written in a single bit.
        StorageError: If the folder or a file in it cannot be read.
    """
    return read_parts(path, keep=False)[0]


def read_parts(
    path: str | os.PathLike[str], *, keep: bool = True
) -> tuple[ModelFolder, dict[str, bytes]]:
    """Do as `read_folder` does, and return the parts too: the very bytes that were verified."""
    folder = Path(path)
    said = _read_manifest(folder)
    parts = {name: _verified(folder / name, part, keep) for name, part in said.parts.items()}
    fields = msgspec.structs.asdict(said)
    fields["preparation"] = Preparation(**msgspec.structs.asdict(fields["preparation"]))
    del fields["format"]
    return ModelFolder(path=folder, **{**fields, "parts": tuple(parts)}), parts


def is_damaged(folder: Path, name: str) -> bool:
    """Whether a part of a model folder is not what its manifest says, which is whole itself."""
    with suppress(CheckpointError, StorageError):
        part = _read_manifest(folder).parts.get(name)
        try:
            if part is not None:
                _verified(folder / name, part, keep=False)
        except CorruptFileError:
            return True
    return False


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


def _read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    if not folder.is_dir():
        raise StorageError(f"{folder} is not a folder. Give the one that a model was written to.")
    if not path.is_file():
        raise CheckpointError(
            f"{folder} holds no {MANIFEST}, so it is not a model folder, or was never finished. "
            f"A model folder of ours holds {WEIGHTS} and {MANIFEST}; write it again."
        )
    raw = read_file(path, CHECK, LARGEST_MANIFEST)
    try:
        content = SEAL.opened(raw, FORMAT, exact=True)
    except ValueError as error:
        raise _damaged(path, f"is not as it was written: {error}") from error
    try:
        return fitted(content, Manifest)
    except ValueError as error:
        raise _damaged(path, f"is not a manifest of ours: {error}") from error


def _verified(path: Path, part: Part, keep: bool) -> bytes:
    """Return the content of a part, or nothing of it where it is not to be kept."""
    if not path.is_file():
        raise _damaged(path, "is missing")
    if path.resolve().parent != path.parent.resolve():
        raise _damaged(path, "is a link that leaves the folder")
    try:
        actual = path.stat().st_size
        if actual != part.size:
            raise _damaged(path, f"has {actual:,} bytes where {part.size:,} were written")
        with path.open("rb") as stream:
            data = stream.read(actual) if keep else b""
            digest = hashlib.sha256(data) if keep else hashlib.file_digest(stream, "sha256")
    except OSError as error:
        said = error.strerror or error
        raise StorageError(f"{path} could not be read: {said}. {CHECK}") from error
    if digest.hexdigest() != part.sha256:
        raise _damaged(path, "is not as it was written: its SHA-256 differs")
    return data


def _damaged(path: Path, how: str) -> CorruptFileError:
    return CorruptFileError(f"{path} {how}. Copy the folder again, or write the model again.")
