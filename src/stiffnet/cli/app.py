"""The commands of ``stiffnet``: one file each, torch imported only inside one."""

from typing import Annotated

import typer

from stiffnet.cli.command import Command
from stiffnet.cli.compare import compare
from stiffnet.cli.demo import demo
from stiffnet.cli.fetch import fetch
from stiffnet.cli.fold import fold
from stiffnet.cli.gradcam import gradcam
from stiffnet.cli.listing import listing
from stiffnet.cli.measure import measure
from stiffnet.cli.ode import ode
from stiffnet.cli.report import report
from stiffnet.cli.restyle import restyle
from stiffnet.cli.spectrum import spectrum
from stiffnet.cli.stripes import stripes
from stiffnet.cli.study import study
from stiffnet.cli.train import train

app = typer.Typer(
    name="stiffnet",
    help="Measure the stiffness of residual networks, attach attention, and fold it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text: every line of the help is as wide as the terminal
)
COMMANDS = (
    compare, demo, fetch, fold, gradcam, measure, ode, report, restyle, spectrum, stripes, study,
    train,
)  # fmt: skip
for command in COMMANDS:
    app.command(cls=Command)(command)
app.command("list", cls=Command)(listing)


@app.callback(invoke_without_command=True)
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.")
    ] = False,
) -> None:
    if show_version:
        from stiffnet import __version__

        print(f"stiffnet {__version__}")
        raise typer.Exit
