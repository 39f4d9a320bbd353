"""One self-contained HTML page of any results, in which nothing that a user wrote is markup."""

from collections.abc import Sequence
from typing import Any

from stiffnet.report.blocks import (
    Block,
    Box,
    Definitions,
    Gallery,
    Part,
    Section,
    Title,
)
from stiffnet.report.frame import framed
from stiffnet.report.kinds import parts_of
from stiffnet.report.text import listed


def page(results: Sequence[Any], *, titles: Sequence[str] = (), heading: str = "") -> str:
    """Return one HTML page that shows one result, or several, of one kind or of several.

    Measured networks are compared, and overlaid where they have the same steps.

    Args:
        results: What `StiffnessReport`, `StripeReport`, `FoldReport` or `Forms` hold.
        titles: What to call each of them; their networks' names where none are given.
        heading: What the page is about; the titles where it is not given.
    """
    assert results, "a page shows at least one result"
    parts = parts_of(results, list(titles) or [""] * len(results))
    articles = [article for part in parts for article in part.articles]
    names = dict.fromkeys(article.title for article in articles)
    return framed(
        [*(section for part in parts for section in part.sections), *_back(parts)],
        heading=heading or " and ".join(names) or "network",
        lead=[block for part in parts for block in part.lead],
        articles=articles,
        several=len(articles) > 1,
        kind=listed(list(dict.fromkeys(part.kind for part in parts if part.kind))),
    )


def _back(parts: Sequence[Part]) -> list[Section]:
    """Return what stands at the end, gathered from all parts: numbers, words, provenance."""
    tables = tuple(item for part in parts for item in part.tables)
    words = dict(item for part in parts for item in part.definitions)
    facts = tuple(item for part in parts for item in part.facts)
    sections = (
        ("tables", "The numbers", "Tables", Gallery("network", "Network", tables, panels=True)),
        ("reading", "How to read this", "How to read", Definitions(tuple(words.items()))),
        ("facts", "Where these numbers come from", "Provenance", Box("pair", _groups(facts))),
    )
    given = (tables, words, facts)
    return [
        Section(name, heading, link, (block,))
        for (name, heading, link, block), items in zip(sections, given, strict=True)
        if items
    ]


def _groups(facts: Sequence[tuple[str, Block]]) -> tuple[Block, ...]:
    several = len(facts) > 1
    return tuple(Box("group", (*([Title(t)] if several else []), block)) for t, block in facts)
