"""The command ``stiffnet``: signals first, then everything that takes time to import."""

import os
import signal
import sys

TYPE_CHECKING = False  # as type checkers know it; `typing` would take its time
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType


def main(argv: "Sequence[str] | None" = None) -> int:
    """Run one command and return its exit status.

    A deliberate error is one sentence on stderr with its own status, a misspelt option 2; Ctrl-C
    ends with 130, SIGTERM with 143; anything else is a bug and keeps its traceback.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    from stiffnet.cli.app import app
    from stiffnet.errors import StiffnetError, StorageError

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal may not know every sign
            stream.reconfigure(errors="replace")
    try:
        app(args=argv, prog_name="stiffnet")
        sys.stdout.flush()
    except StiffnetError as error:
        print(f"stiffnet: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"stiffnet: {_told(error)}", file=sys.stderr)
        return StorageError.exit_code
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0
    return 0


def _told(error: OSError) -> str:
    """Say which file or folder an error of the system is about, and what can be done."""
    paths = [path for path in (error.filename, error.filename2) if path is not None]
    named = " and ".join(path if isinstance(path, str) else repr(path) for path in paths)
    if not named:
        return f"{error.strerror or error}."
    return (
        f"{named} could not be read or written: {error.strerror or error}. Check the name, the "
        "permissions and the disk, or give another place."
    )


def _stop(number: int, frame: "FrameType | None") -> None:
    """End the command: by an exception, so that what is being written is tidied up.

    Within an import the process ends at once. Nothing is being written then, and an exception
    might be lost there, or be reported as another one.
    """
    word = "interrupted" if number == signal.SIGINT else "terminated"
    print(f"stiffnet: {word}.", file=sys.stderr, flush=True)
    if _is_importing(frame):
        os._exit(128 + number)
    raise SystemExit(128 + number)


def _is_importing(frame: "FrameType | None") -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
