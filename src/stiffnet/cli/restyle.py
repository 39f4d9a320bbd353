"""``stiffnet restyle``: a style-transfer network applied to pictures."""

from pathlib import Path
from typing import Annotated

import typer

from stiffnet.cli.options import Device, Where, text
from stiffnet.cli.terminal import Terminal


def restyle(
    model: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A run of `train style:NAME`, or a folded network."),
    ],
    pictures: Annotated[
        list[str], typer.Argument(metavar="PICTURES", help="Picture files; also china, flower.")
    ],
    out: Annotated[Path, text("DIR", "Folder for the pictures, which become NAME.png.")],
    device: Where = Device.auto,
) -> None:
    """Show pictures in the style that a network has learnt.

    Each keeps its size. Networks before and after folding make the same pictures.
    """
    from stiffnet.jobs.restyle import restyle as job

    for file in job(model, pictures, out, device=device.value, watcher=Terminal()):
        print(file)
