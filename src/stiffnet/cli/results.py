"""What a command found: where it goes, what it says of itself, how it is shown."""

import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from stiffnet.cli.progress import note

if TYPE_CHECKING:
    from rich.console import RichCast

    from stiffnet.network.loaded import LoadedModel

SIGNS = {".json": '"format": "stiffnet ', ".html": " · stiffnet</title>"}  # of files of ours


def file_name(name: str) -> str:
    """Make a name that any file system takes.

    >>> file_name("torchvision:resnet18")
    'torchvision_resnet18'
    """
    return re.sub(r"[^\w.-]+", "_", Path(name).name)


def as_argument(path: Path) -> str:
    """Write a path so that a command does not take it for an option.

    >>> as_argument(Path("-run")), as_argument(Path("run"))
    ('./-run', 'run')
    """
    return f"./{path}" if str(path).startswith("-") else str(path)


def check_places(folder: Path, *names: str) -> None:
    """See, before long work, that files can be written to a folder, and whose they would replace.

    Raises:
        StorageError: If they cannot be written, or one of them is there and is not ours.
    """
    from stiffnet.files import check_replaceable, check_writable

    check_writable(folder)
    for name in names:
        check_replaceable(folder / name, SIGNS[Path(name).suffix])


def command() -> str:
    """Return the command line, to be typed again."""
    return shlex.join(["stiffnet", *sys.argv[1:]])


def facts_of(loaded: "LoadedModel", data: str) -> dict[str, str]:
    """Tell what was looked at: the network, its weights, the data, the command."""
    return {
        "model": loaded.name,
        "form": loaded.form,
        "weights": _origin(loaded),
        "data": data,
        "command": command(),
    }


def _origin(loaded: "LoadedModel") -> str:
    """Tell where the weights come from; random ones are noted for the user too."""
    if loaded.made_by.get("weights") == "random":
        seed = loaded.made_by["seed"]
        note(f"no weights were given: {loaded.name} is measured as initialised with seed {seed}.")
    if "renamed" in loaded.made_by:
        note(f"names in the weights file were changed to fit: {loaded.made_by['renamed']}.")
    told = {key.replace("_", " "): value for key, value in loaded.made_by.items()}
    return ", ".join(f"{key} {value}" for key, value in told.items()).removeprefix("weights ")


def show(report: "RichCast", folder: Path, files: Mapping[str, str]) -> None:
    """Print a report, write its files all together, and say where they are."""
    from rich.console import Console

    from stiffnet.files import atomic_write_all

    console = Console()
    console.print(report)
    check_places(folder, *files)  # again, since that was some time ago
    written = atomic_write_all({folder / name: content for name, content in files.items()})
    told = " and ".join(map(str, written))
    console.print(f"Written: {told}", markup=False, highlight=False)
