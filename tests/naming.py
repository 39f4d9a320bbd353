"""Many cases in one test: the one that fails is named."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(*name: object) -> Iterator[None]:
    """Add the name of the case to whatever is raised in the block."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {', '.join(map(repr, name))}")
        raise
