import signal

import pytest


@pytest.fixture(autouse=True)
def _signals():
    """`main` takes the signals over, as a command may; a test run wants its own back."""
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
