"""What a job looks at: a network by its name, a run, or a model folder."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack

from stiffnet.errors import CheckpointError
from stiffnet.network.described_folder import is_described
from stiffnet.network.loaded import LoadedModel
from stiffnet.network.model_folder import MANIFEST
from stiffnet.network.model_names import is_classifier_name, is_model_name
from stiffnet.network.open import open_model
from stiffnet.train.run_folder import RunFolder

Spec = str | os.PathLike[str]


class Choice(TypedDict, total=False):
    """What every job on a network takes, beside the network itself."""

    weights: Spec | None
    """None for a folder's own or random ones, ``"pretrained"``, or a weights file."""
    weights_key: str
    """Which state dict of a checkpoint, such as ``"state_dict_ema"``."""
    attention: str | None
    """A module for every step of a named network; a folder knows its own."""
    num_classes: int | None
    """Number of outputs; None for that of the weights, or of the data, or the network's own."""


@dataclass(frozen=True)
class Subject:
    """What was named, and where its network is."""

    spec: Spec
    """As it was given."""
    folder: Path | None = None
    """Of the network; None where a name builds it."""
    run: RunFolder | None = None
    """Whose final network it is."""

    @property
    def named(self) -> bool:
        """Whether it is built from a name, and not read from a folder."""
        return self.folder is None

    @property
    def ours(self) -> bool:
        """Whether it is a folder that we wrote."""
        return self.folder is not None and (self.folder / MANIFEST).exists()

    def open(
        self, *, guess: int | None = None, seed: int = 0, **choice: Unpack[Choice]
    ) -> LoadedModel:
        """Build the network and fill it, as `open_model` does.

        `guess` is the number of outputs where nothing else says it: for a name without weights. A
        folder of ours has its own attention, and takes no other.
        """
        attention = choice.get("attention")
        if attention is not None and self.ours:
            raise CheckpointError(
                f"{self.spec} was trained with its own attention, so `--attention {attention}` "
                "cannot be attached to it here. Leave the option out."
            )
        said = (choice.get("num_classes"), choice.get("weights"))
        if said == (None, None) and is_classifier_name(str(self.spec)):
            choice["num_classes"] = guess
        place = self.spec if self.folder is None else self.folder
        return open_model(place, adopt_classes=True, seed=seed, **choice)


def subject_of(spec: Spec) -> Subject:
    """Find the network that a name, a run or a model folder stands for.

    A name wins over a folder of the same name; write ``./NAME`` for the folder. What is neither is
    refused when it is opened.

    Raises:
        CheckpointError: If it is a folder without a network in it, or a run that is not finished.
    """
    path = Path(spec)
    if (isinstance(spec, str) and is_model_name(spec)) or not path.is_dir():
        return Subject(spec)
    run = RunFolder(path)
    if (path / MANIFEST).exists() or is_described(path):
        return Subject(spec, path)
    if run.finished:
        return Subject(spec, run.final, run)
    if run.recipe.exists():
        resume = shlex.join(["stiffnet", "train", "--resume", "--out", as_argument(path)])
        raise CheckpointError(
            f"The run in {path} is not finished. Finish it with `{resume}`, or give one of the "
            f"checkpoints in {run.checkpoints}."
        )
    raise CheckpointError(
        f"{path} is neither a run nor a model folder. Give a folder that `stiffnet train` or "
        "`stiffnet fold` wrote, or one of timm or transformers with a `config.json`."
    )


def as_argument(path: Path) -> str:
    """Write a path so that a command takes it neither for an option nor for a network's name.

    >>> [as_argument(Path(name)) for name in ("-run", "resnet18", "run")]
    ['./-run', './resnet18', 'run']
    """
    text = str(path)
    return f"./{text}" if text.startswith("-") or is_model_name(text) else text


def facts_of(loaded: LoadedModel, *, data: str, command: str) -> dict[str, str]:
    """Tell what was looked at: the network, its weights, the data, the command if there was one."""
    told = {key.replace("_", " "): value for key, value in loaded.made_by.items()}
    weights = ", ".join(f"{key} {value}" for key, value in told.items()).removeprefix("weights ")
    facts = {"model": loaded.name, "form": loaded.form, "weights": weights, "data": data}
    return facts | ({"command": command} if command else {})


def remarks_on(loaded: LoadedModel) -> Iterator[str]:
    """Say what is unusual about the weights of a network."""
    if loaded.made_by.get("weights") == "random":
        seed = loaded.made_by["seed"]
        yield f"no weights were given: {loaded.name} is used as initialised with seed {seed}."
    told = loaded.made_by
    if "other_keys" in told:
        yield (
            f"of {told['weights']}, the state dict under {told['key']!r} was taken; there is also "
            f"{told['other_keys']}, which `--weights-key` would take."
        )
    if "prefix" in told:
        yield f"names in the weights file begin with {told['prefix']!r}, which was taken off."
    if "left_out" in told:
        yield f"tensors of other modules in the weights file were left out: {told['left_out']}."
    if "renamed" in told:
        yield f"names in the weights file were changed to fit: {told['renamed']}."
    if "preparation" in told:
        yield (
            "the folder does not say how its images are prepared, so they are normalised by "
            "ImageNet's mean and standard deviation."
        )
