"""Whoever follows a job: how far it is, what is unusual, what it found."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RichCast

    from stiffnet.train.recipe import Recipe
    from stiffnet.train.run import Audience


class Watcher:
    """Follows a job. This one says nothing; override what you want to hear of."""

    def note(self, text: str) -> None:
        """Hear of something unusual that is not an error."""

    def found(self, result: "RichCast") -> None:
        """Hear of a result before its files are written, so that a full disk does not lose it."""

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Follow one piece of work, `total` long; the yielded function is told what is done."""
        yield lambda amount: None

    @contextmanager
    def training(self, recipe: "Recipe") -> Iterator["Audience"]:
        """Follow a training run: its steps and epochs. What is unusual is a `note`."""
        from stiffnet.train.run import NOBODY

        yield NOBODY


SILENT = Watcher()
