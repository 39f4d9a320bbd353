"""``stiffnet fetch``: a public data set onto this machine."""

import shlex
from pathlib import Path
from typing import Annotated

from stiffnet.cli.options import argument
from stiffnet.cli.terminal import Terminal


def fetch(
    name: Annotated[str, argument("NAME", "cifar10, cifar100 or stl10.")],
    folder: Annotated[Path, argument("DIR", "Folder to put it in.")],
) -> None:
    """Download a data set from its authors, and check its SHA-256."""
    from stiffnet.data.download import SOURCES, download
    from stiffnet.registry import check_known

    check_known("data set to fetch", name, SOURCES)
    with Terminal().progress(f"fetching {name}", SOURCES[name].size) as advance:
        download(name, folder, on_bytes=advance)
    print(f"Use it as `--data {shlex.quote(f'{name}:{folder}')}`.")
