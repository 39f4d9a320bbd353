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


REMARKS = {  # by the fact that calls for them
    "other_keys": "of {weights}, the state dict under {key!r} was taken; there is also "
    "{other_keys}, which `--weights-key` would take.",
    "prefix": "names in the weights file begin with {prefix!r}, which was taken off.",
    "left_out": "tensors of other modules in the weights file were left out: {left_out}.",
    "renamed": "names in the weights file were changed to fit: {renamed}.",
    "said_to_be_of": "{weights} says that it is of {said_to_be_of}, and {name} was named: the "
    "tensors have the same names and shapes, but the two networks may compute differently.",
    "preparation": "the folder does not say how its images are prepared, so they are normalised "
    "by ImageNet's mean and standard deviation.",
}


def remarks_on(loaded: LoadedModel) -> Iterator[str]:
    """Say what is unusual about the weights of a network."""
    told = {**loaded.made_by, "name": loaded.name}
    if told.get("weights") == "random":
        seed = told["seed"]
        yield f"no weights were given: {loaded.name} is used as initialised with seed {seed}."
    yield from (text.format_map(told) for fact, text in REMARKS.items() if fact in told)
