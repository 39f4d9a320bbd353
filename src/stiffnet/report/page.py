"""One self-contained HTML page of any results, in which nothing that a user wrote is markup."""

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from stiffnet.report.blocks import Box, Gallery, Part, Plot, Reading, Section, Title, all_blocks
from stiffnet.report.kinds import parts_of
from stiffnet.report.text import clean, finite, pieces
from stiffnet.report.theme import TO_DARK
from stiffnet.words import listed

_DIGITS = 5  # significant digits of a number in a figure: more than a screen can show


def page(results: Sequence[Any], *, titles: Sequence[str] = (), heading: str = "") -> str:
    """Return one HTML page that shows one result, or several, of one kind or of several.

    Measured networks are compared, and overlaid where they have the same steps. The page carries
    its own scripts, style and data and asks nothing of any server; its content-security policy lets
    no script run but those that it names by their hash. The template escapes all that it is given.

    Args:
        results: Results of any kind: what `stiffnet.measure`, `stripes`, `fold` and others return.
        titles: What to call each of them; their networks' names where none are given.
        heading: What the page is about; the titles where it is not given.
    """
    assert results, "a page shows at least one result"
    parts = parts_of(results, titles or [""] * len(results))
    articles = [article for part in parts for article in part.articles]
    heading = heading or " and ".join(dict.fromkeys(title for title, _ in articles))
    lead = [block for part in parts for block in part.lead]
    sections = [*(section for part in parts for section in part.sections), *_back(parts)]
    plots = [block for block in all_blocks((*lead, *sections)) if isinstance(block, Plot)]
    figures = {plot.place: plot.figure.to_plotly_json() for plot in plots}
    assert len(figures) == len(plots), "two figures have one place"
    code = [*([get_plotlyjs()] if plots else []), _asset("page.js")]
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            sections=sections,
            heading=clean(heading, longest=300),
            lead=lead,
            articles=articles,
            kind=listed(list(dict.fromkeys(part.kind for part in parts))),
            drawn=bool(plots),
            policy=content_policy(code),
            scripts=[Markup(script) for script in code],  # noqa: S704 - our own files and plotly's
            style=Markup(_asset("page.css")),  # noqa: S704 - our own file
            data=json_block({"figures": figures, "dark": TO_DARK}),
        )
    )


def _back(parts: Sequence[Part]) -> list[Section]:
    """Return what stands at the end, gathered from all parts: numbers, words, provenance."""
    tables = [item for part in parts for item in part.tables]
    words = list(dict.fromkeys(name for part in parts for name in part.reading))
    facts = [item for part in parts for item in part.facts]
    networks = Gallery("network", "Result", tables, panels=True)
    heading = "Where these numbers come from"
    found = []
    if tables:
        found.append(Section("tables", "The numbers", "Tables", "", [networks]))
    if words:
        found.append(Section("reading", "How to read this", "How to read", "", [Reading(words)]))
    if facts:
        groups = [
            Box("group", [Title(title), block] if len(facts) > 1 else [block])
            for title, block in facts
        ]
        found.append(Section("facts", heading, "Provenance", "", [Box("pair", groups)]))
    return found


def content_policy(scripts: Iterable[str]) -> str:
    """Return the policy under which only the given inline scripts run and nothing is loaded."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def json_block(value: Any) -> Markup:
    r"""Return strict JSON (no NaN, no infinity) that is safe inside a ``<script>`` element.

    >>> str(json_block({"a": [float("nan"), "</script>"]}))
    '{"a":[null,"\\u003c/script\\u003e"]}'
    """
    text = json.dumps(_plain(value), allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - no character that HTML reads is left


def said(text: str) -> Markup:
    """Return a sentence as HTML; all of it is escaped, unless it is markup of our own."""
    if isinstance(text, Markup):
        return text
    looks = {True: Markup("<strong>{}</strong>"), False: Markup("{}")}
    return Markup("").join(looks[weighty].format(piece) for piece, weighty in pieces(text))


def _plain(value: Any) -> Any:
    """Return `value` as plain JSON types, with rounded numbers and None where none is finite."""
    if isinstance(value, dict) and "bdata" in value:
        return _plain(_unpacked(value))
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (str, bool, np.bool_)):
        return bool(value) if isinstance(value, np.bool_) else value
    if isinstance(value, (int, np.integer)):
        return int(value)
    known = finite(value)
    return None if known is None else float(f"{known:.{_DIGITS}g}")


def _unpacked(packed: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Return an array as it was before plotly packed it, which would keep all of its digits."""
    flat = np.frombuffer(base64.b64decode(packed["bdata"]), np.dtype(packed["dtype"]))
    shape = [int(size) for size in str(packed.get("shape", flat.size)).split(",")]
    return flat.reshape(shape)


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    made = Environment(
        autoescape=True,
        loader=PackageLoader("stiffnet.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["said"] = said
    return made
