"""Phrases that many sentences need: a few of many names, a rough time, an error in short."""

from collections.abc import Iterable, Sequence


def few(names: Iterable[str], most: int = 3, separator: str = ", ") -> str:
    """Write the first of some names, and how many more there are.

    >>> few(["a", "b"]), few("abcdef"), few([])
    ('a, b', 'a, b, c and 3 more', 'none')
    """
    named = list(names)
    more = f" and {len(named) - most:,} more" if len(named) > most else ""
    return (separator.join(named[:most]) or "none") + more


def listed(names: Sequence[str], most: int | None = None) -> str:
    """Join names as in a sentence; of more than `most`, say how many more there are.

    >>> listed(["a", "b", "c"]), listed("abcdef", most=3)
    ('a, b and c', 'a, b, c and 3 more')
    """
    shown = list(names[:most])
    if len(shown) < len(names):
        shown.append(f"{len(names) - len(shown)} more")
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def first_line(error: BaseException) -> str:
    r"""What an error of others' says, in one line without a stop; its kind if it says nothing.

    >>> first_line(ValueError("It is odd.\nLook here.")), first_line(KeyError())
    ('It is odd', 'KeyError')
    """
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".! ")


def duration(seconds: float) -> str:
    """Write a rough time.

    >>> duration(12.3), duration(600), duration(9000)
    ('12 s', '10 minutes', '2.5 hours')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
