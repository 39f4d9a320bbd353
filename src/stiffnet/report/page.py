"""One self-contained HTML page of any results, in which nothing that a user wrote is markup."""

from collections.abc import Sequence
from typing import Any

from stiffnet.report.blocks import Box, Gallery, Part, Reading, Section, Title
from stiffnet.report.frame import framed
from stiffnet.report.kinds import parts_of
from stiffnet.words import listed


def page(results: Sequence[Any], *, titles: Sequence[str] = (), heading: str = "") -> str:
    """Return one HTML page that shows one result, or several, of one kind or of several.

    Measured networks are compared, and overlaid where they have the same steps.

    Args:
        results: Results of any kind: what `stiffnet.measure`, `stripes`, `fold` and others return.
        titles: What to call each of them; their networks' names where none are given.
        heading: What the page is about; the titles where it is not given.
    """
    assert results, "a page shows at least one result"
    parts = parts_of(results, titles or [""] * len(results))
    articles = [article for part in parts for article in part.articles]
    return framed(
        [*(section for part in parts for section in part.sections), *_back(parts)],
        heading=heading or " and ".join(dict.fromkeys(title for title, _ in articles)),
        lead=[block for part in parts for block in part.lead],
        articles=articles,
        kind=listed(list(dict.fromkeys(part.kind for part in parts))),
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
