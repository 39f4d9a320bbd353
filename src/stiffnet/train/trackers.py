"""Rows of a run for TensorBoard or trackio; both are optional packages."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from stiffnet.errors import StiffnetError, UnknownNameError
from stiffnet.registry import unknown


class Tracker(Protocol):
    """Takes the rows of one run."""

    def log(self, row: Mapping[str, Any]) -> None:
        """Take one epoch's row."""

    def close(self) -> None:
        """Take no more."""


class TensorBoard:
    """Event files in the folder of the run."""

    def __init__(self, folder: Path, recipe: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"))
        self.writer.add_text("recipe", "\n".join(f"    {k} = {v!r}" for k, v in recipe.items()))

    def log(self, row: Mapping[str, Any]) -> None:
        """Write one event for each number."""
        for key, value in row.items():
            self.writer.add_scalar(key, value, row["epoch"])
        self.writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self.writer.close()


class Trackio:
    """A run in the local trackio project ``stiffnet``."""

    def __init__(self, folder: Path, recipe: Mapping[str, Any]) -> None:
        import trackio

        self.run = trackio.init(project="stiffnet", name=folder.name, config=dict(recipe))

    def log(self, row: Mapping[str, Any]) -> None:
        """Hand on one row."""
        self.run.log(dict(row))

    def close(self) -> None:
        """End the run."""
        self.run.finish()


TRACKERS: dict[str, Callable[[Path, Mapping[str, Any]], Tracker]] = {
    "tensorboard": TensorBoard,
    "trackio": Trackio,
}


def check_tracker(name: str) -> None:
    """See that a tracker can be opened, before a run begins.

    Raises:
        UnknownNameError: If there is none of that name.
        StiffnetError: If its package is not installed.
    """
    if name not in TRACKERS:
        raise UnknownNameError(unknown("tracker", name, TRACKERS))
    if find_spec(name) is None:  # each is called as its package is
        raise StiffnetError(
            f"`--tracker {name}` needs the package {name}, which is not installed. "
            f"Install it with `pip install 'stiffnet[{name}]'`."
        )


def open_tracker(name: str, folder: Path, recipe: Mapping[str, Any]) -> Tracker:
    """Return the tracker called `name`, for the run in `folder`."""
    check_tracker(name)
    return TRACKERS[name](folder, recipe)
