"""Options that commands which look at a network on images have in common."""

from typing import Annotated

import typer

Data = Annotated[
    str, typer.Option(metavar="D", help="digits, cifar10:DIR, or a folder of class folders.")
]
BatchSize = Annotated[
    int,
    typer.Option(
        min=1, help="Images at a time; the result is the same, unless a norm uses the batch."
    ),
]
Workers = Annotated[int, typer.Option(min=0, help="Processes that decode image files.")]
Classes = Annotated[
    str,
    typer.Option(
        metavar="C",
        help="What the outputs stand for, where the network does not know: a file with a class "
        "name a line, or JSON; 'imagenet'; 'data' if they are the data's classes, in order.",
    ),
]
