"""What is known about a network that was opened."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import nn

from stiffnet.data.images import Preparation
from stiffnet.network.deployed import Change
from stiffnet.network.model_folder import Fact


@dataclass(frozen=True)
class LoadedModel:
    """A network in evaluation mode, and what is known about it."""

    model: nn.Module
    name: str
    preparation: Preparation
    classes: tuple[str, ...]  # empty where they are not known
    form: str  # "train", as it is trained, or "folded"
    made_by: Mapping[str, Fact]
    options: Mapping[str, Fact]  # that `create_model` built it with
    changes: tuple[Change, ...] = ()  # how its structure differs from what `create_model` builds


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
    if "said_to_be_of" in told:
        yield (
            f"{told['weights']} says that it is of {told['said_to_be_of']}, and {loaded.name} was "
            "named: the tensors have the same names and shapes, but the two networks may compute "
            "differently."
        )
    if "preparation" in told:
        yield (
            "the folder does not say how its images are prepared, so they are normalised by "
            "ImageNet's mean and standard deviation."
        )
