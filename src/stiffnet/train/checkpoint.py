"""Where a run stands, on the disk: the newest checkpoint, the one before, and the best.

A checkpoint is a model folder (`stiffnet measure` takes it) with three more parts: the tensors
of the optimizer, the averaged weights if there are any, and ``state.json``. Its manifest is written
last and seals every part, so that a checkpoint is whole or is none.
"""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor

from stiffnet.data.images import Preparation
from stiffnet.errors import CheckpointError, CorruptFileError, StorageError
from stiffnet.network.folder import (
    MANIFEST,
    WEIGHTS,
    Fact,
    read_folder,
    stored_tensors,
    write_folder,
)
from stiffnet.train.state import State, read_state

OPTIMIZER, AVERAGE, STATE = "optimizer.safetensors", "average.safetensors", "state.json"
RECIPE = "recipe.toml"
NAME = re.compile(r"epoch-(?P<epoch>\d+)-step-(?P<step>\d+)")
KEPT = 2  # newest checkpoints, beside the best


@dataclass(frozen=True)
class About:
    """What every model folder of one run says about its network."""

    name: str
    options: Mapping[str, Fact]
    classes: tuple[str, ...]
    preparation: Preparation
    recipe: str  # as TOML
    made_by: Mapping[str, Fact]


@dataclass(frozen=True)
class Tensors:
    """Everything that is no plain number."""

    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    average: Mapping[str, Tensor]  # empty without averaging


def write_checkpoint(folder: Path, about: About, tensors: Tensors, state: State) -> Path:
    """Write a checkpoint, then remove those that are neither new nor best.

    Raises:
        StorageError: If it could not be written; the older ones are untouched then.
    """
    parts = {
        OPTIMIZER: _packed(tensors.optimizer),
        STATE: state.to_json().encode(),
        RECIPE: about.recipe.encode(),
    }
    if tensors.average:
        parts[AVERAGE] = _packed(tensors.average)
    path = folder / checkpoint_name(len(state.history), state.step)
    if (path / MANIFEST).exists():  # resumed from, and stopped before another step was done
        return path
    try:
        write_model(path, about, tensors.weights, state, parts=parts)
    except StorageError:
        shutil.rmtree(path, ignore_errors=True)  # a half one helps nobody, and takes space
        raise
    prune(folder, state)
    return path


def write_model(
    path: Path,
    about: About,
    weights: Mapping[str, Tensor],
    state: State,
    *,
    parts: Mapping[str, bytes] | None = None,
) -> None:
    """Write a model folder of this run."""
    write_folder(
        path,
        weights,
        name=about.name,
        options=about.options,
        classes=about.classes,
        preparation=about.preparation,
        made_by={**about.made_by, "epochs": len(state.history), "steps": state.step},
        parts={RECIPE: about.recipe.encode(), **(parts or {})},
    )


def read_checkpoint(path: Path) -> tuple[Tensors, State]:
    """Verify a checkpoint and return what it holds.

    Raises:
        CheckpointError: If it is damaged, or was never finished.
        StorageError: If it cannot be read.
    """
    parts = read_folder(path).parts
    missing = {OPTIMIZER, STATE, RECIPE} - set(parts)
    if missing:
        raise CheckpointError(
            f"{path} is a model, and no checkpoint: it has no {', '.join(sorted(missing))}. "
            "Give the folder of the run."
        )
    tensors = Tensors(
        _unpacked(path / WEIGHTS),
        _unpacked(path / OPTIMIZER),
        _unpacked(path / AVERAGE) if AVERAGE in parts else {},
    )
    try:
        return tensors, read_state((path / STATE).read_text())
    except ValueError as error:
        raise strange_state(path, error) from error


def strange_state(path: Path, error: ValueError) -> CorruptFileError:
    """Return the error for a checkpoint whose state is none."""
    return CorruptFileError(
        f"{path / STATE} is not what this version writes: {error}. Use the version that wrote it, "
        "or begin again in another folder."
    )


def checkpoint_name(epochs: int, steps: int) -> str:
    """Name of the folder: an epoch's last step may be kept before its test and after it."""
    return f"epoch-{epochs:04d}-step-{steps:09d}"


def checkpoints(folder: Path) -> list[Path]:
    """Return the finished checkpoints in a folder, newest first, damaged ones among them."""
    found = [path for path in _folders(folder) if (path / MANIFEST).exists()]
    return sorted(found, key=_age, reverse=True)


def newest_whole(folder: Path) -> tuple[Path | None, list[str]]:
    """Return the newest checkpoint that is as it was written, and what is wrong with newer ones.

    Damaged ones are set aside under another name.

    Raises:
        CorruptFileError: If there are checkpoints, and all of them are damaged.
    """
    faults: dict[Path, str] = {}
    for path in checkpoints(folder):
        try:
            read_checkpoint(path)
        except (CheckpointError, StorageError) as error:
            faults[path] = str(error)
            continue
        for damaged in faults:
            aside = damaged.with_name(f"damaged-{damaged.name}")
            shutil.rmtree(aside, ignore_errors=True)  # of an earlier time
            damaged.rename(aside)
        return path, list(faults.values())
    if faults:
        raise CorruptFileError(
            f"No checkpoint in {folder} can be used: {' '.join(faults.values())} "
            "Bring a copy of one back, or begin again in another folder."
        )
    return None, []


def prune(folder: Path, state: State) -> None:
    """Remove checkpoints that are older than the newest ones and not the best."""
    for path in checkpoints(folder)[KEPT:]:
        if _age(path) != (state.best.get("step"), state.best.get("epoch")):
            (path / MANIFEST).unlink(missing_ok=True)  # first, so that no half one looks whole
            shutil.rmtree(path, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove what a killed run left half written."""
    for path in _folders(folder):
        if not (path / MANIFEST).exists():
            shutil.rmtree(path, ignore_errors=True)
    for pattern in (".*.tmp", "*/.*.tmp", "*/*/.*.tmp"):  # the run's, its networks', checkpoints'
        for path in folder.parent.glob(pattern):
            path.unlink(missing_ok=True)


def _folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if NAME.fullmatch(path.name)]


def _age(path: Path) -> tuple[int, int]:
    """Steps and finished epochs: later ones are larger."""
    found = NAME.fullmatch(path.name)
    assert found
    return int(found["step"]), int(found["epoch"])


def _packed(tensors: Mapping[str, Tensor]) -> bytes:
    return safetensors.torch.save(stored_tensors(tensors))


def _unpacked(path: Path) -> dict[str, Tensor]:
    try:  # sorted, since ranks that share tensors out must do so in the same order
        return dict(sorted(safetensors.torch.load(path.read_bytes()).items()))
    except OSError as error:
        raise StorageError(
            f"{path} could not be read: {error.strerror or error}. Check the disk."
        ) from error
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise CorruptFileError(f"{path} is no file of tensors: {error}. Copy it again.") from error
