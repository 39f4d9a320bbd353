"""A training run on the terminal: a bar on stderr, a line for each epoch on stdout."""

from contextlib import ExitStack
from typing import Any

from rich.progress import Progress, TaskID, TextColumn

from stiffnet.cli.terminal import progress_bar
from stiffnet.train.recipe import Recipe
from stiffnet.train.run import Audience
from stiffnet.train.tally import Tally
from stiffnet.train.tasks import task_of

PATIENCE = 20  # steps between looks at the loss, which wait for the device


class Follower(Audience):
    """Shows a run."""

    def __init__(self, recipe: Recipe, stack: ExitStack) -> None:
        self.recipe = recipe
        self.told = task_of(recipe)  # which knows the words for its numbers
        self.stack = stack  # closes the bar
        self.bar: Progress | None = None
        self.task = TaskID(0)
        self.steps = 0

    def begin(self, images: int, done: int) -> None:
        """Open the bar."""
        self.bar = progress_bar(TextColumn("{task.percentage:.1f} %"))
        self.stack.enter_context(self.bar)
        self.task = self.bar.add_task(self.recipe.model, total=images, completed=done)

    def step(self, images: int, tally: Tally) -> None:
        """Move the bar."""
        assert self.bar
        self.bar.advance(self.task, images)
        self.steps += 1
        if self.steps % PATIENCE == 0 and not self.bar.disable:
            text = f"{self.recipe.model}  {self.told.so_far(tally.to_dict())}"
            self.bar.update(self.task, description=text)

    def epoch(self, row: dict[str, Any]) -> None:
        """Print a line."""
        print(
            f"epoch {row['epoch']}/{self.recipe.epochs}: {self.told.in_words(row)}"
            f"{_stiffness(row)}; {row['images_per_second']:.0f} images/s",
            flush=True,
        )


def _stiffness(row: dict[str, Any]) -> str:
    """Tell TNS where it was measured: its error over more than one image, if there is a total."""
    if "tns" not in row:
        return ""
    if row["tns"] is None:
        return ", TNS undefined (no step counts)"
    error = "" if row["tns_se"] is None else f" ± {row['tns_se']:.3f}"
    return f", TNS {row['tns']:.3f}{error}"
