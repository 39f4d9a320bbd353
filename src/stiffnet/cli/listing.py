"""``stiffnet list``: the names that the other commands take."""

from enum import StrEnum
from typing import Annotated

import typer


class Kind(StrEnum):
    """What can be listed."""

    models = "models"
    data = "data"


def listing(
    kind: Annotated[Kind, typer.Argument(help="What to list.")],
    pattern: Annotated[
        str, typer.Argument(help="Show only names like this, e.g. 'resnet*'.")
    ] = "*",
) -> None:
    """List the models or data sets that `measure` knows."""
    from stiffnet.errors import UnknownNameError

    if kind is Kind.models:
        from stiffnet.network.load import model_names

        rows = model_names(pattern)
    else:
        import fnmatch

        from stiffnet.data import DATA

        rows = [(e.name, e.summary) for e in DATA if fnmatch.fnmatchcase(e.name, pattern)]
    if not rows:
        raise UnknownNameError(
            f"No {kind.value} match {pattern!r}. `stiffnet list {kind.value}` shows all of them."
        )
    width = max(len(name) for name, _ in rows)
    for name, about in rows:
        print(f"{name:{width}}  {about}")
