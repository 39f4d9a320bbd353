"""Weights in several files, and which of a folder's files are its weights.

An index, ``*.index.json``, says in which file each tensor is. What it says and what the files hold
must be the same.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stiffnet.errors import CheckpointError, CorruptFileError
from stiffnet.words import few

INDEX = ".index.json"
NAMES = (  # of a folder's weights, the first of them that is there
    "model.safetensors",
    f"model.safetensors{INDEX}",
    "weights.safetensors",
    "pytorch_model.bin",
    f"pytorch_model.bin{INDEX}",
)
SUFFIXES = (".safetensors", ".pth", ".pt", ".ckpt", ".bin", ".pth.tar", INDEX)
LARGEST = 64 * 2**20  # bytes of an index


def weights_in_folder(folder: Path) -> Path:
    """Return a folder's weights, or their index; a CheckpointError if none or several are there."""
    for name in NAMES:
        if (folder / name).is_file():
            return folder / name
    found = sorted(
        path.name for path in folder.iterdir() if path.name.endswith(SUFFIXES) and path.is_file()
    )
    indices = [name for name in found if name.endswith(INDEX)]
    if len(indices or found) == 1:
        return folder / (indices or found)[0]
    if not found:
        raise CheckpointError(
            f"{folder} is a folder without weights: it has no file such as {NAMES[0]} or "
            f"{NAMES[3]}. Give a weights file."
        )
    raise CheckpointError(
        f"{folder} is a folder with several weights files ({few(found, 4)}). Give one of them."
    )


def read_shards(path: Path, read: Callable[[Path], Mapping[str, object]]) -> dict[str, object]:
    """Return the tensors that an index names; a CorruptFileError unless all files agree with it."""
    shards: dict[str, set[str]] = {}
    for name, file in _weight_map(path).items():
        shards.setdefault(file, set()).add(name)
    absent = [file for file in sorted(shards) if not (path.parent / file).is_file()]
    if absent:
        raise CorruptFileError(
            f"{path} names {len(shards)} files, and {len(absent)} of them "
            f"{'is' if len(absent) == 1 else 'are'} missing: {few(absent)}. Download them too."
        )
    if nested := [file for file in sorted(shards) if _is_json(path.parent / file)]:
        raise CorruptFileError(
            f"{path} names {nested[0]!r} as a file of tensors, and that is an index itself. "
            "Download it again."
        )
    result: dict[str, object] = {}
    for file, names in sorted(shards.items()):
        content = read(path.parent / file)
        wrong = sorted(names ^ content.keys())
        if wrong:
            has = "holds" if wrong[0] in content else "does not hold"
            raise CorruptFileError(
                f"{path} and {path.parent / file} do not agree: the file {has} {wrong[0]!r}. "
                "Download both again."
            )
        result |= content
    return result


def _is_json(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(64).lstrip()[:1] == b"{"


def _weight_map(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as stream:
            content: Any = json.loads(stream.read(LARGEST))
        names = content["weight_map"]
        if not all(isinstance(name, str) for pair in names.items() for name in pair):
            raise TypeError
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
        raise CorruptFileError(
            f"{path} is damaged or not a weights file: it is JSON without a `weight_map` of names "
            "to files. Give the weights, or the index that was written with them."
        ) from error
    for file in names.values():
        if file in ("", ".", "..") or any(sign in file for sign in "/\\\0"):
            raise CorruptFileError(
                f"{path} names a file outside its folder, {file!r}, so nothing was read. "
                "Download it again."
            )
    if not names:
        raise CorruptFileError(f"{path} names no tensor. Download it again.")
    return dict(names)
