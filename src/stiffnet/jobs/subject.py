"""What a job looks at: a network by its name, a run, or a model folder."""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from stiffnet.errors import CheckpointError
from stiffnet.network.described_folder import is_described
from stiffnet.network.loaded import LoadedModel
from stiffnet.network.model_folder import MANIFEST
from stiffnet.network.model_names import is_classifier_name, is_model_name
from stiffnet.network.open import open_model
from stiffnet.train.run_folder import RunFolder

Spec = str | os.PathLike[str]


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
        self,
        *,
        weights: Spec | None = None,
        weights_key: str = "",
        attention: str | None = None,
        num_classes: int | None = None,
        guess: int | None = None,
        seed: int = 0,
    ) -> LoadedModel:
        """Build the network and fill it.

        Args:
            weights: None for a folder's own or random ones, ``"pretrained"``, or a weights file.
            weights_key: Which state dict of a checkpoint.
            attention: A module for every step; a folder knows its own.
            num_classes: Number of outputs; None for that of the weights file, where there is one.
            guess: Number of outputs where nothing else says it: for a name without weights.
            seed: Of random weights.

        Raises:
            UnknownNameError: If nothing has that name.
            CheckpointError: If the weights are missing or do not fit, or a folder, which has its
                own attention, is given another.
        """
        if attention is not None and self.ours:
            raise CheckpointError(
                f"{self.spec} was trained with its own attention, so `--attention {attention}` "
                "cannot be attached to it here. Leave the option out."
            )
        if num_classes is None and weights is None and is_classifier_name(str(self.spec)):
            num_classes = guess
        return open_model(
            self.spec if self.folder is None else self.folder,
            weights=weights,
            weights_key=weights_key,
            num_classes=num_classes,
            adopt_classes=True,
            attention=attention,
            seed=seed,
        )


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
