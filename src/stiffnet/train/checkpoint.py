"""Where a run stands, on the disk: the newest checkpoint, the one before, and the best.

A checkpoint is a model folder (`stiffnet measure` takes it) with three more parts: the tensors
of the optimizer, the averaged weights if there are any, and ``state.json``. ``run.json`` is written
first and says whose it is; the manifest is written last and seals every part, so that a checkpoint
is whole or is none. What does not say that it is of the run is never removed or replaced.
"""

import contextlib
import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor

from stiffnet.data.images import Preparation
from stiffnet.errors import CheckpointError, CorruptFileError, StorageError
from stiffnet.files import atomic_write, is_temporary, sweep_temporaries
from stiffnet.network.model_folder import (
    MANIFEST,
    WEIGHTS,
    Fact,
    ModelFolder,
    is_damaged,
    read_parts,
    stored_tensors,
    write_folder,
)
from stiffnet.train.identity import RUN, Identity, identity_from, is_of, read_identity
from stiffnet.train.recipe_file import RECIPE
from stiffnet.train.state import State, read_state

OPTIMIZER, AVERAGE, STATE = "optimizer.safetensors", "average.safetensors", "state.json"
LOG = "log.jsonl"
PARTS = (MANIFEST, WEIGHTS, OPTIMIZER, AVERAGE, STATE, RECIPE, LOG, RUN)  # as they are removed
NAME = re.compile(r"epoch-(?P<epoch>\d{4,})-step-(?P<step>\d{9,})")
DAMAGED = "damaged-"  # begins the name of a checkpoint that was set aside
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
    identity: Identity = field(default_factory=Identity)


@dataclass(frozen=True)
class Tensors:
    """Everything that is not a plain number."""

    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    average: Mapping[str, Tensor]  # empty without averaging


@dataclass(frozen=True)
class Checkpoint:
    """What was read from a checkpoint, and verified while it was."""

    folder: ModelFolder
    tensors: Tensors
    state: State
    identity: Identity

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.folder.path


def write_checkpoint(folder: Path, about: About, tensors: Tensors, state: State) -> Path:
    """Write a checkpoint, then remove those that are neither new nor best.

    Where it could not be written, the older ones are untouched.
    """
    parts = {OPTIMIZER: _packed(tensors.optimizer), STATE: state.to_json().encode()}
    if tensors.average:
        parts[AVERAGE] = _packed(tensors.average)
    path = folder / checkpoint_name(len(state.history), state.step)
    run = about.identity.run
    if (path / MANIFEST).exists() and is_of(path, run):
        return path  # resumed from, and stopped before another step was done
    try:
        write_model(path, about, tensors.weights, state, parts=parts)
    except StorageError:
        if is_of(path, run):
            discard(path)  # a half one helps nobody, and takes space
        raise
    prune(folder, state, run)
    return path


def write_model(
    path: Path,
    about: About,
    weights: Mapping[str, Tensor],
    state: State,
    *,
    parts: Mapping[str, bytes] | None = None,
) -> None:
    """Write a model folder of this run, in place of one that it wrote before, if any.

    Something else in its place stays, and is refused.
    """
    if not is_of(path, about.identity.run) and _is_taken(path):
        raise StorageError(
            f"{path} was not written by this run, so it was left alone. Move it away, and continue "
            "with `--resume`."
        )
    owner = about.identity.to_json()
    atomic_write(path / RUN, owner)  # first, so that half of a folder says whose it is
    write_folder(
        path,
        weights,
        name=about.name,
        options=about.options,
        classes=about.classes,
        preparation=about.preparation,
        made_by={**about.made_by, "epochs": len(state.history), "steps": state.step},
        parts={RECIPE: about.recipe.encode(), RUN: owner.encode(), **(parts or {})},
    )


def discard(folder: Path, parts: Sequence[str] = PARTS) -> None:
    """Remove the files of a model folder that a run wrote, and the folder if it is empty then.

    Other files stay. The manifest goes first, so that nothing that is being
    removed looks whole, and last the file that says whose it is.
    """
    if not is_folder(folder):
        return
    for part in parts:
        with contextlib.suppress(OSError):
            os.unlink(folder / part)
    sweep_temporaries(folder, parts)
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def is_folder(path: Path) -> bool:
    """Whether a folder is there itself, and not a link to one."""
    return path.is_dir() and not path.is_symlink()


def _is_taken(path: Path) -> bool:
    """Whether something is there that an empty folder is not."""
    if not is_folder(path):
        return os.path.lexists(path)
    sweep_temporaries(path, [RUN])  # that a killed run left
    return any(path.iterdir())


def read_checkpoint(path: Path) -> Checkpoint:
    """Verify a checkpoint and return what it holds; each part is read once."""
    folder, parts = read_parts(path)
    missing = {OPTIMIZER, STATE, RECIPE, RUN} - set(parts)
    if missing:
        raise CheckpointError(
            f"{path} is a model, but not a checkpoint: it has no {', '.join(sorted(missing))}. "
            "Give the folder of the run."
        )
    identity = identity_from(parts[RUN])
    if identity is None:
        raise CorruptFileError(
            f"{path / RUN} is not what this version writes. Use the version that wrote it, or "
            "start over in another folder."
        )
    try:
        state = read_state(parts[STATE])
    except ValueError as error:
        raise strange_state(path, error) from error
    tensors = (
        _unpacked(path / name, parts.pop(name)) if name in parts else {}  # gone once unpacked
        for name in (WEIGHTS, OPTIMIZER, AVERAGE)
    )
    return Checkpoint(folder, Tensors(*tensors), state, identity)


def strange_state(path: Path, error: ValueError) -> CorruptFileError:
    """Return the error for a checkpoint whose state is none."""
    return CorruptFileError(
        f"{path / STATE} is not what this version writes: {error}. Use the version that wrote it, "
        "or start over in another folder."
    )


def checkpoint_name(epochs: int, steps: int) -> str:
    """Name of the folder: an epoch's last step may be kept before its test and after it."""
    return f"epoch-{epochs:04d}-step-{steps:09d}"


def checkpoints(folder: Path, run: str = "") -> list[Path]:
    """Return the finished checkpoints in a folder, newest first, damaged ones among them.

    Those that say that they are of another run are left out, unless what they say is damaged.
    """
    return [
        path
        for path in finished_folders(folder)
        if read_identity(path) is None or is_of(path, run) or is_damaged(path, RUN)
    ]


def finished_folders(folder: Path) -> list[Path]:
    """Return the finished checkpoints of any run in a folder, newest first."""
    found = [path for path in _folders(folder) if (path / MANIFEST).exists()]
    return sorted(found, key=_age, reverse=True)


def newest_whole(folder: Path, run: str = "") -> tuple[Checkpoint | None, list[str]]:
    """Return the newest checkpoint that is as it was written, and what is wrong with newer ones.

    Damaged ones are set aside under another name. If all are damaged, a CorruptFileError is raised.
    """
    faults: dict[Path, str] = {}
    for path in checkpoints(folder, run):
        try:
            found = read_checkpoint(path)
        except (CheckpointError, StorageError) as error:
            faults[path] = str(error)
            continue
        for damaged in faults:
            damaged.rename(unused(damaged.with_name(f"{DAMAGED}{damaged.name}")))
        return found, list(faults.values())
    if faults:
        raise CorruptFileError(
            f"No checkpoint in {folder} can be used: {' '.join(faults.values())} "
            "Bring back a copy of one, or start over in another folder."
        )
    return None, []


def unused(path: Path) -> Path:
    """Return a path where nothing is: this one, or one with a number behind its name."""
    others = (path.with_name(f"{path.stem}-{n}{path.suffix}") for n in itertools.count(2))
    return next(each for each in itertools.chain([path], others) if not os.path.lexists(each))


def prune(folder: Path, state: State, run: str = "") -> None:
    """Remove checkpoints of a run that are older than the newest ones and not the best."""
    for path in [path for path in checkpoints(folder, run) if is_of(path, run)][KEPT:]:
        if _age(path) != (state.best.get("step"), state.best.get("epoch")):
            discard(path)


def sweep(folder: Path, run: str = "") -> None:
    """Remove what a killed run left half written in its folder of checkpoints."""
    for path in _folders(folder):
        sweep_model(path, run)


def sweep_model(path: Path, run: str) -> None:
    """Remove what a killed run left half written in a model folder, and one that is empty."""
    if is_of(path, run) and not (path / MANIFEST).exists():
        discard(path)
    elif is_folder(path):
        sweep_temporaries(path, PARTS)
        with contextlib.suppress(OSError):
            os.rmdir(path)  # one in which nothing was written yet


def discard_all(folder: Path, run: str) -> None:
    """Remove every checkpoint of a run, and their folder if it is empty then."""
    sweep(folder, run)
    for path in (*_folders(folder), *_folders(folder, DAMAGED)):
        if is_of(path, run):
            discard(path)
    with contextlib.suppress(OSError):  # a link, or something of somebody else's is in it
        os.rmdir(folder)


def strangers(folder: Path, run: str) -> list[Path]:
    """Return what is in a folder of checkpoints and is not of the run."""
    if not is_folder(folder):
        return [folder] if os.path.lexists(folder) else []
    named = {*_folders(folder), *_folders(folder, DAMAGED)}
    return [
        path
        for each in sorted(folder.iterdir())
        for path in (strange_files(each, run) if each in named else [each])
    ]


def strange_files(folder: Path, run: str) -> list[Path]:
    """Return what is in a model folder beside what the run wrote there, finished or not."""
    if not is_folder(folder):
        return [folder] if os.path.lexists(folder) else []
    own = PARTS if is_of(folder, run) else ()
    strange = [
        path
        for path in sorted(folder.iterdir())
        if path.name not in own and not is_temporary(path.name, PARTS)
    ]
    return strange if own or not strange else [folder]


def _folders(folder: Path, prefix: str = "") -> list[Path]:
    """Return the folders that are named as we name checkpoints; links are none."""
    return [
        path
        for path in (folder.iterdir() if is_folder(folder) else ())
        if (found := re.fullmatch(f"{prefix}{NAME.pattern}{'.*' if prefix else ''}", path.name))
        and checkpoint_name(int(found["epoch"]), int(found["step"])) in path.name
        and is_folder(path)
    ]


def _age(path: Path) -> tuple[int, int]:
    """Steps and finished epochs: later ones are larger."""
    found = NAME.fullmatch(path.name)
    assert found
    return int(found["step"]), int(found["epoch"])


def _packed(tensors: Mapping[str, Tensor]) -> bytes:
    return safetensors.torch.save(stored_tensors(tensors))


def _unpacked(path: Path, data: bytes) -> dict[str, Tensor]:
    try:  # sorted, since ranks that share tensors out must do so in the same order
        return dict(sorted(safetensors.torch.load(data).items()))
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise CorruptFileError(
            f"{path} is not a file of tensors: {error}. Copy it again."
        ) from error
