"""Names of steps in little room, shortened so that no two of them look alike."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import takewhile

from stiffnet.report.text import clean, clip


def short_names(names: Iterable[object], longest: int) -> list[str]:
    """Shorten names to at most `longest` characters; different names stay different.

    What all of them begin with goes first, then the middle of a name, then all but the first
    letters of its words. If nothing of that helps, names are numbered.

    >>> short_names([f"model.encoder.layers.{i}.attention.output" for i in (9, 10)], 24)
    ['…9.attention.output', '…10.attention.output']
    >>> short_names(["a.encoder.layer.attention", "b.encoder.layer.attention"], 18)
    ['a.encoder…ttention', 'b.encoder…ttention']
    """
    whole = [clean(name) for name in names]
    if all(len(name) <= longest for name in whole):
        return whole
    different = len(set(whole))
    ways: list[Callable[[str], str]] = [
        _without(whole),
        *(partial(_letters, n=n) for n in (4, 2, 1)),
    ]
    for way in ways:
        made = [clip(way(name), longest) for name in whole]
        if len(set(made)) == different:
            return made
    numbers = {name: str(i) for i, name in enumerate(dict.fromkeys(whole), start=1)}
    return [f"{clip(n, max(1, longest - len(numbers[n]) - 1))}:{numbers[n]}" for n in whole]


def _without(names: Sequence[str]) -> Callable[[str], str]:
    """Leave out the parts of a path with which all names begin, but never the last part."""
    paths = zip(*(name.split(".")[:-1] for name in names), strict=False)
    shared = len(list(takewhile(lambda parts: len(set(parts)) == 1, paths)))

    def shorter(name: str) -> str:
        return "…" + ".".join(name.split(".")[shared:]) if shared else name

    return shorter


def _letters(name: str, n: int) -> str:
    """Keep the first letters of every word in a path, and all of its numbers.

    >>> _letters("encoder.layer.10.attention#1", 3)
    'enc.lay.10.att#1'
    """
    return re.sub(r"[^\W\d_]+", lambda word: word[0][:n], name)
