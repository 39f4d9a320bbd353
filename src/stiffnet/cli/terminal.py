"""A job on the terminal: progress bars and notes on stderr, results on stdout."""

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from stiffnet.jobs.watching import Watcher

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType, RichCast
    from rich.progress import Progress, ProgressColumn

    from stiffnet.train.recipe import Recipe
    from stiffnet.train.run import Audience


class Terminal(Watcher):
    """Shows a job; bars only where stderr is a terminal."""

    def note(self, text: str) -> None:
        """Say it on stderr."""
        print(f"note: {text}", file=sys.stderr)

    def found(self, result: "RichCast") -> None:
        """Print the result."""
        show(result)

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show how much of `total` is done; the yielded function adds to it."""
        from rich.progress import MofNCompleteColumn

        with progress_bar(MofNCompleteColumn()) as bar:
            task = bar.add_task(what, total=total)
            yield lambda amount: bar.advance(task, amount)

    @contextmanager
    def training(self, recipe: "Recipe") -> Iterator["Audience"]:
        """Show a bar for the run, and a line for each epoch."""
        from stiffnet.cli.following import Follower

        with ExitStack() as stack:
            yield Follower(recipe, stack)


def progress_bar(amount: "ProgressColumn") -> "Progress":
    """Return a bar that says how much is done, on stderr where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


def show(result: "RenderableType") -> None:
    """Print a result on stdout."""
    from rich.console import Console

    Console().print(result)


def command_line() -> str:
    """Return the command, to be typed again."""
    return shlex.join(["stiffnet", *sys.argv[1:]])


def measuring(folder: "Path", data: str) -> str:
    """Return the command that measures a network on the test images of these data."""
    from stiffnet.data import spec_of_tests
    from stiffnet.errors import DataError
    from stiffnet.jobs.subject import as_argument

    with suppress(DataError):  # of a finished run whose data are elsewhere by now
        data = spec_of_tests(data)
    return shlex.join(["stiffnet", "measure", as_argument(folder), "--data", data])
