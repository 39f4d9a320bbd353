"""The command ``stiffnet``: one file per command, torch imported only inside one."""

import io
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Annotated

import typer

from stiffnet.cli.demo import demo
from stiffnet.cli.fetch import fetch
from stiffnet.cli.fold import fold
from stiffnet.cli.listing import listing
from stiffnet.cli.measure import measure
from stiffnet.cli.stripes import stripes
from stiffnet.cli.train import train
from stiffnet.errors import StiffnetError, StorageError

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


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    A deliberate error is one sentence on stderr with its own status, a misspelt option 2; Ctrl-C
    ends with 130, SIGTERM with 143; anything else is a bug and keeps its traceback.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal may not know every sign
            stream.reconfigure(errors="replace")
    try:
        app(args=argv, prog_name="stiffnet")
        sys.stdout.flush()
    except StiffnetError as error:
        print(f"stiffnet: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"stiffnet: {error.strerror or error}.", file=sys.stderr)
        return StorageError.exit_code
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0
    return 0


def _stop(number: int, frame: FrameType | None) -> None:
    word = "interrupted" if number == signal.SIGINT else "terminated"
    print(f"stiffnet: {word}.", file=sys.stderr)
    raise SystemExit(128 + number)
