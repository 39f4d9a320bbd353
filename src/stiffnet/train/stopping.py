"""Ctrl-C and SIGTERM: the step that runs is finished and kept, then the run ends."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from stiffnet.errors import StiffnetError

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(StiffnetError):
    """A run that a signal ended; its exit status is the signal's, 130 or 143."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


class Stop:
    """Remembers the first signal; a second one ends the process at once."""

    def __init__(self) -> None:
        self.number = 0  # of the signal; only the handler sets it, since it may come at any moment
        self.agreed = 0  # what all ranks have heard of

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.number:
            raise SystemExit(128 + number)  # what is on the disk is whole at any moment
        self.number = number


@contextmanager
def listening() -> Iterator[Stop]:
    """Catch both signals within the block, and give back whoever listened before."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread may listen
        return
    before = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
