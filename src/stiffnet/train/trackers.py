"""Rows of a run for TensorBoard or trackio; both are optional packages."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stiffnet.errors import StiffnetError
from stiffnet.registry import check_known


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


Tracker = TensorBoard | Trackio
TRACKERS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "trackio": Trackio}


def check_tracker(name: str) -> None:
    """See that there is such a tracker, and its package, before a run begins."""
    check_known("tracker", name, TRACKERS)
    if find_spec(name) is None:  # each is called as its package is
        raise StiffnetError(
            f"`--tracker {name}` needs the package {name}, which is not installed. "
            f"Install it with `pip install 'stiffnet[{name}]'`."
        )


def open_tracker(name: str, folder: Path, recipe: Mapping[str, Any]) -> Tracker:
    """Return the tracker called `name`, for the run in `folder`."""
    check_tracker(name)
    return TRACKERS[name](folder, recipe)
