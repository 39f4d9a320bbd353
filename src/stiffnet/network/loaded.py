"""What is known about a network that was opened."""

from collections.abc import Mapping
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
