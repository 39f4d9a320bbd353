"""``stiffnet restyle``: a style-transfer network applied to pictures."""

from pathlib import Path
from typing import Annotated

from stiffnet.cli.options import Where, argument, text
from stiffnet.cli.terminal import Terminal


def restyle(
    model: Annotated[str, argument("RUN", "A run of `train style:NAME`, or a folded network.")],
    pictures: Annotated[list[str], argument("PICTURES", "Picture files; also china, flower.")],
    out: Annotated[Path, text("DIR", "Folder for the pictures, which become NAME.png.")],
    device: Where = "auto",
) -> None:
    """Show pictures in the style that a network has learnt.

    Each keeps its size. Networks before and after folding make the same pictures.
    """
    from stiffnet.jobs.restyle import restyle as job

    for file in job(model, pictures, out, device=device, watcher=Terminal()):
        print(file)
