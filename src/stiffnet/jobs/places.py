"""Where the files of a job go: names for them, and nothing of anybody else's is overwritten."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from stiffnet.errors import CheckpointError, FoldError
from stiffnet.files import atomic_write_all, check_replaceable, check_writable, is_temporary
from stiffnet.network.folded_folder import PARTS
from stiffnet.network.model_folder import FOLDED, read_folder
from stiffnet.train.run_folder import RunFolder

SIGNS = {  # of files of ours
    ".json": '"format": "stiffnet ',
    ".html": " · stiffnet</title>",
    ".md": "<!-- Written by stiffnet ",
}


def file_name(name: str | os.PathLike[str]) -> str:
    """Make a name that any file system takes.

    >>> file_name("torchvision:resnet18"), file_name("runs/first")
    ('torchvision_resnet18', 'first')
    """
    return re.sub(r"[^\w.-]+", "_", Path(name).resolve().name)


def result_name(model: str | os.PathLike[str]) -> str:
    """Name the folder for results on a network; a part of a run has its run's name before its own.

    Otherwise the results on the `final` of one run would replace those on another's.
    """
    path = Path(model).resolve()
    run = RunFolder(path.parent)
    inside = path in run.places and run.recipe.exists()
    return file_name(f"{run.path.name}-{path.name}" if inside else model)


def check_places(folder: Path, *names: str) -> None:
    """Raise a StorageError, before long work, if files cannot be written or others' are there."""
    check_writable(folder)
    for name in names:
        check_replaceable(folder / name, SIGNS[Path(name).suffix])


def write(folder: Path, files: Mapping[str, str]) -> tuple[Path, ...]:
    """Write the files of a result, all of them or none; see `check_places`."""
    check_places(folder, *files)
    return tuple(atomic_write_all({folder / name: text for name, text in files.items()}))


def refuse_strangers(folder: Path) -> None:
    """Raise a FoldError if a folder holds anything but a folded network, which may be replaced."""
    if not folder.exists() or all(is_temporary(path.name, PARTS) for path in folder.iterdir()):
        return
    try:
        form = read_folder(folder).form
    except CheckpointError:
        form = ""
    if form != FOLDED:
        raise FoldError(
            f"{folder} contains something other than a folded network; nothing was overwritten. "
            "Choose another folder with `--out`."
        )
