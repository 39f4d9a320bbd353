"""What the loop, the log and the checkpoints have to know about a task, and nothing else."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from stiffnet.data import Data
from stiffnet.data.images import Preparation
from stiffnet.errors import CheckpointError, RecipeError
from stiffnet.network.loaded import LoadedModel
from stiffnet.train.recipe import DEFAULTS, OF_RESTYLE, Recipe

Network = Callable[..., Any]  # takes the network's inputs, returns its output
Row = Mapping[str, Any]  # of the log: what is known of an epoch
NOT_FOR_ALL = (  # fields of a recipe that only some tasks use
    "label_smoothing", "mixup", "cutmix", "frozen_stages", "frozen_norms", *OF_RESTYLE,
)  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """How a network did on one batch, as sums over its samples; nothing waits for the device.

    What cannot be summed, as a metric of the whole test set needs it, is `kept`, on the CPU.
    """

    samples: int
    loss: Tensor  # what is minimised, the sum of its parts if it has several
    more: Mapping[str, Tensor] = field(default_factory=dict)  # a value for each count and sum
    kept: Any = None


class Task(ABC):
    """What is learnt from a batch, and how one tells how well.

    A pass over the data adds up what `judge` returns, in float64 and int64, and `columns` turns the
    sums into numbers. A row of the log holds them twice, as ``train_NAME`` and ``test_NAME``.

    Attributes:
        best: The column of a row by which the best epoch is chosen, such as ``test_top1``.
        larger_is_better: Whether the best epoch has the largest value there, or the smallest.
        counts: Names of whole numbers that `judge` adds up, beside ``samples``.
        sums: Names of other numbers that it adds up, beside ``loss``.
        uses: Fields of a recipe, out of `NOT_FOR_ALL`, that this task uses.
    """

    best: ClassVar[str]
    larger_is_better: ClassVar[bool] = True
    counts: ClassVar[tuple[str, ...]] = ()
    sums: ClassVar[tuple[str, ...]] = ()
    uses: ClassVar[tuple[str, ...]] = ()

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        for name in NOT_FOR_ALL:
            if name not in self.uses and getattr(recipe, name) != DEFAULTS[name]:
                usual = DEFAULTS[name]
                back = f"Leave `{name}` out." if usual == "" else f"Set `{name}` back to {usual}."
                raise RecipeError(
                    f"`{name}` is {getattr(recipe, name)}, but `task` is {recipe.task!r}, which "
                    f"does not use it. {back}"
                )

    def data(self, spec: str) -> str:
        """Return what `open_splits` opens for a recipe's `data`; unless overridden, that itself."""
        return spec

    def open(self, preparation: Preparation) -> None:  # noqa: B027  # most need nothing
        """Open what is needed beside the data, before anything is written; usually nothing.

        Raises:
            StiffnetError: One of its kinds, if it cannot be used.
        """

    def files(self) -> Mapping[str, Path]:
        """Return the files beside the data that a run depends on, by what they are called.

        A run that is resumed must find them as they were.
        """
        return {}

    @abstractmethod
    def outputs(self, data: Data) -> int:
        """Return how many outputs a network needs for these data."""

    @abstractmethod
    def judge(self, network: Network, batch: Any, *, training: bool) -> Judged:
        """Run the network on a batch, which lies on its device, and judge the output."""

    def columns(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return the numbers of a pass from its sums; unless overridden, the mean of each."""
        samples = sums["samples"]
        names = ("loss", *self.counts, *self.sums)
        return {name: sums[name] / samples if samples else math.nan for name in names}

    def tested(self, sums: Mapping[str, float], kept: Sequence[Any]) -> dict[str, float | None]:
        """Return the numbers of a pass over the test set; unless overridden, those of its sums.

        `kept` is what `judge` kept of each batch, those of all ranks in the order of the data. None
        stands for a number that does not exist.
        """
        return {**self.columns(sums)}

    def inputs(self, batch: Any) -> Any:
        """Return the images of a batch, for those who look at the network and not at the task."""
        return batch[0]

    def classes(self, data: Data) -> tuple[str, ...]:
        """Return the names of the network's outputs, if they have any."""
        return ()

    def check(self, loaded: LoadedModel, data: Data, output: Any) -> None:
        """Refuse a network that does not fit the data; `output` is what it makes of two images.

        Raises:
            CheckpointError: If it does not fit; unless overridden, by the number of its outputs.
        """
        if not isinstance(output, Tensor) or output.shape[1:] != (self.outputs(data),):
            raise CheckpointError(
                f"{loaded.name} does not have the {self.outputs(data)} outputs that "
                f"{self.recipe.task!r} needs on {data.name}. Start from a network by its name."
            )

    def is_better(self, row: Row, than: Row) -> bool:
        """Whether one epoch is better than another."""
        one, other = row[self.best], than[self.best]
        return bool(one > other if self.larger_is_better else one < other)

    def so_far(self, sums: Mapping[str, float]) -> str:
        """Describe an epoch under way, in a few words."""
        return "  ".join(f"{name} {value:.3g}" for name, value in self.columns(sums).items())

    def in_words(self, row: Row) -> str:
        """Describe a finished epoch."""
        parts = (
            ", ".join(
                f"{key.removeprefix(start)} {value:.4g}"
                for key, value in row.items()
                if key.startswith(start)
            )
            for start in ("train_", "test_")
        )
        return "train {}; test {}".format(*parts)

    def conclusion(self, last: Row, best: Row) -> str:
        """Describe a finished run by its last epoch and its best one."""
        name = self.best.replace("_", " ").capitalize()
        return (
            f"{name} after the last epoch: {last[self.best]:.4g}. Best epoch, chosen on the test "
            f"set: {best['epoch']}, {best[self.best]:.4g}."
        )
