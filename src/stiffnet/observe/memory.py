"""The largest memory that the process has had since a moment, where the system tells."""

import contextlib
import re
from pathlib import Path

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Peak:
    """Starts to watch when it is made.

    >>> peak = Peak().bytes
    >>> peak is None or peak > 0
    True
    """

    def __init__(self) -> None:
        self._known = False
        with contextlib.suppress(OSError):
            _RESET.write_text("5")  # which sets the high-water mark to what is in use now
            self._known = True

    @property
    def bytes(self) -> int | None:
        """The largest resident size since then; None where the system does not tell."""
        if not self._known:
            return None
        found = re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())
        return int(found[1]) * 1024 if found else None
