"""The commands of ``stiffnet``: one file each, torch imported only inside one."""

from typing import Annotated

import typer

from stiffnet.cli.demo import demo
from stiffnet.cli.fetch import fetch
from stiffnet.cli.fold import fold
from stiffnet.cli.listing import listing
from stiffnet.cli.measure import measure
from stiffnet.cli.stripes import stripes
from stiffnet.cli.train import train

app = typer.Typer(
    name="stiffnet",
    help="Measure how stiff residual networks are, attach attention to them, fold it away.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(fetch)
app.command()(fold)
app.command()(measure)
app.command()(stripes)
app.command()(train)
app.command("list")(listing)


@app.callback(invoke_without_command=True)
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.")
    ] = False,
) -> None:
    if show_version:
        from stiffnet import __version__

        print(f"stiffnet {__version__}")
        raise typer.Exit
