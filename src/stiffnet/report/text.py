"""Words and numbers for people: user text made harmless, numbers rounded to what they say."""

import html
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MISSING = "–"
REPLACEMENT = "\ufffd"

_LONGEST = 4_000  # characters of one user string; a longer one is a mistake or an attack
_STRONG = ("\x02", "\x03")
_JOINERS = "\u200c\u200d"  # format characters that ordinary words need


def strong(text: str) -> str:
    """Mark a piece of a sentence that carries its weight, by characters that `clean` removes."""
    return f"{_STRONG[0]}{text}{_STRONG[1]}"


def pieces(sentence: str) -> list[tuple[str, bool]]:
    """Return a sentence piece by piece, each with whether it is strong.

    >>> pieces(f"It is {strong('large')}.")
    [('It is ', False), ('large', True), ('.', False)]
    """
    parts = re.split(f"[{''.join(_STRONG)}]", sentence)
    return [(part, i % 2 == 1) for i, part in enumerate(parts)]


def plain(sentence: str) -> str:
    """Return a sentence without its emphasis."""
    return "".join(piece for piece, _ in pieces(sentence))


def rows(frame: Any) -> list[dict[str, Any]]:
    """Return the rows of a frame, or none where there is no frame."""
    return [] if frame is None else frame.to_dict("records")


def known(records: Iterable[dict[str, Any]], *keys: str) -> list[dict[str, Any]]:
    """Return the records that have a finite number under each of these keys."""
    return [row for row in records if all(finite(row[key]) is not None for key in keys)]


def largest(records: Iterable[dict[str, Any]], key: str) -> dict[str, Any] | None:
    """Return the first record with the largest of these numbers, or None where none has one."""
    return max(known(records, key), key=lambda row: float(row[key]), default=None)


def cleaned(facts: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return facts without characters that act."""
    return tuple((clean(key, longest=80), clean(value)) for key, value in facts.items())


def clean(text: object, *, longest: int = _LONGEST) -> str:
    r"""Return user text without characters that act instead of being shown.

    Line breaks and tabs become spaces; control characters, terminal escapes, direction overrides,
    lone surrogates and other invisible format characters become U+FFFD; text above `longest`
    characters is shortened in its middle. Markup is left as it is: escape it for the place where
    it goes.

    >>> clean("a\tb\x1b[31m")
    'a b�[31m'
    >>> clean("layer1.0.conv1", longest=9)
    'laye…onv1'
    """
    whole = str(text)
    if whole.isascii() and whole.isprintable():
        return clip(whole, longest)
    return clip("".join(map(_shown, whole[: 2 * _LONGEST])), longest)


def _shown(character: str) -> str:
    if character in "\n\r\t\v\f\u2028\u2029\x85":
        return " "
    if character in _JOINERS:
        return character
    return REPLACEMENT if unicodedata.category(character) in {"Cc", "Cf", "Cs"} else character


def clip(text: str, longest: int) -> str:
    """Shorten `text` in its middle: both ends of a module's path tell steps apart."""
    if len(text) <= longest:
        return text
    head = longest // 2
    return text[:head] + "…" + text[len(text) - (longest - head - 1) :]


def plot_text(text: object, *, longest: int = 80) -> str:
    """Return user text that plotly shows as it is.

    Plotly reads ``<b>``, ``<br>``, ``<a href>``, entities and, beside MathJax, ``$…$`` in labels.

    >>> plot_text("<b>$x$</b>")
    '&lt;b&gt;&#36;x&#36;&lt;/b&gt;'
    """
    return html.escape(clean(text, longest=longest), quote=False).replace("$", "&#36;")


def finite(value: Any) -> float | None:
    """Return `value` as a float, or None where there is no finite number."""
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def number(value: Any, digits: int = 3) -> str:
    """Write a number with `digits` significant digits, and a dash where there is none.

    >>> number(0.04217), number(1234.5), number(float("nan")), number(2e-6)
    ('0.0422', '1,234', '–', '2e-06')
    """
    known = finite(value)
    if known is None:
        return MISSING
    if known == 0:
        return "0"
    if not 1e-4 <= abs(known) < 1e9:
        return ("−" if known < 0 else "") + f"{abs(known):.{digits - 1}g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(known))))
    return f"{known:,.{decimals}f}".replace("-", "−")


def fixed(value: Any, decimals: int) -> str:
    """Write a number with a column's decimals, and a dash where there is none.

    >>> fixed(0.0421, 3), fixed(-1.5, 2), fixed(None, 2), fixed(0.00002, 3)
    ('0.042', '−1.50', '–', '0.000')
    """
    known = finite(value)
    return MISSING if known is None else f"{known:,.{decimals}f}".replace("-", "−")


def decimals_for(values: Iterable[Any]) -> int:
    """Return the decimals with which a column's largest number has four significant digits.

    >>> decimals_for([0.012, 0.9]), decimals_for([1.5]), decimals_for([250.0]), decimals_for([])
    (4, 3, 1, 3)
    """
    largest = max((abs(known) for value in values if (known := finite(value))), default=1.0)
    return min(6, max(0, 3 - math.floor(math.log10(largest))))


def count(value: Any) -> str:
    """Write a whole number, with commas."""
    known = finite(value)
    return MISSING if known is None else f"{round(known):,}"


def percent(share: Any) -> str:
    """Write a share of one as a percentage; a small share is never rounded to nothing.

    >>> percent(0.634), percent(0.0213), percent(0.0004), percent(1)
    ('63 %', '2.1 %', '0.04 %', '100 %')
    """
    known = finite(share)
    if known is None:
        return MISSING
    hundredths = 100 * known
    if known == 0 or hundredths >= 9.95:
        rounded = f"{hundredths:.0f}"
        return f"{hundredths:.1f} %" if rounded == "100" and known < 1 else f"{rounded} %"
    return f"{hundredths:.1f} %" if hundredths >= 0.95 else f"{hundredths:.1g} %"


def tenths(share: Any) -> str:
    """Write a share of one as a percentage with one decimal, whatever its size."""
    known = finite(share)
    return MISSING if known is None else f"{fixed(100 * known, 1)} %"


def with_error(value: Any, error: Any) -> str:
    """Write ``value ± error``, both with the decimals that the error supports.

    >>> with_error(1.31249, 0.0412), with_error(1.31249, None), with_error(250.3, 12.2)
    ('1.312 ± 0.041', '1.31', '250 ± 12')
    """
    centre, spread = finite(value), finite(error)
    if centre is None or spread is None or spread <= 0:
        return number(value)
    decimals = min(6, max(0, 1 - math.floor(math.log10(spread))))
    return f"{centre:,.{decimals}f} ± {spread:,.{decimals}f}".replace("-", "−")


def plus_minus(value: Any, error: Any, decimals: int) -> str:
    """Write ``value ± error`` with a column's decimals; the value alone where there is no error.

    >>> plus_minus(31.24, 0.51, 1), plus_minus(-30, None, 1)
    ('31.2 ± 0.5', '−30.0')
    """
    spread = "" if finite(error) is None else f" ± {fixed(error, decimals)}"
    return fixed(value, decimals) + spread


def magnitude(value: Any) -> str:
    """Write a small number by its first digit and its power of ten."""
    known = finite(value)
    return MISSING if known is None else f"{known:.0e}"


def shape(value: Any) -> str:
    """Write a state's shape as ``16 × 32 × 32``.

    >>> shape((16, 32, 32)), shape("token")
    ('16 × 32 × 32', 'token')
    """
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " × ".join(clean(size, longest=20) for size in value)
    return clean(value, longest=60)


def capital(text: str) -> str:
    """Begin a sentence with a capital letter, and leave the rest as it is."""
    return text[:1].upper() + text[1:]


def told_apart(names: Sequence[str], more: Sequence[str]) -> list[str]:
    """Add to names that come twice what tells them apart, or a number where nothing does.

    >>> told_apart(["a", "b", "b", "c", "c"], ["", "one", "two", "one", "one"])
    ['a', 'b, one', 'b, two', 'c, one (1)', 'c, one (2)']
    """
    longer = [
        f"{name}, {own}" if names.count(name) > 1 else name
        for name, own in zip(names, more, strict=True)
    ]
    return [
        f"{name} ({longer[:i].count(name) + 1})" if longer.count(name) > 1 else name
        for i, name in enumerate(longer)
    ]


def images(many: int, noun: str = "images") -> str:
    """Write how many images, or what else the plural `noun` says, with the noun.

    >>> images(1), images(2000, "sentences")
    ('1 image', '2,000 sentences')
    """
    return counted(many, noun.removesuffix("s"))


def a(noun: str) -> str:
    """Write a noun with its article.

    >>> a("image"), a("sentence")
    ('an image', 'a sentence')
    """
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def counted(many: int, noun: str) -> str:
    """Write how many things, with the noun."""
    return f"1 {noun}" if many == 1 else f"{count(many)} {noun}s"
