"""Results as Markdown: the sentences and open tables of a page, for documents in a repository."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from markupsafe import Markup

from stiffnet.report import blocks
from stiffnet.report.kinds import parts_of
from stiffnet.report.text import clean, pieces

SIGN = "<!-- Written by stiffnet report, which overwrites changes that are made by hand. -->"
_ACTING = re.compile(r"([\\`*_\[\]<>|#~$&])")  # what Markdown, HTML or mathematics would read


def markdown(results: Sequence[Any], *, titles: Sequence[str] = (), heading: str) -> str:
    """Return a Markdown document of results: what a page says of them, without its pictures.

    Tables that a page shows closed are left out, and so is what explains a page.

    Args:
        results: Results of any kind, as for a page.
        titles: What to call each of them; their own names where none are given.
        heading: What the document is about.
    """
    parts = parts_of(results, titles or [""] * len(results))
    lines = [SIGN, f"# {_escaped(clean(heading, longest=300))}"]
    for part in parts:
        lines += _of(part.lead)
        for title, said in part.articles:
            lines += [f"## {_escaped(title)}", *_of(said)]
        lines += _of(part.sections)
    facts = [item for part in parts for item in part.facts]
    if facts:
        lines.append("## Where these numbers come from")
        for title, block in facts:
            lines += [f"**{_escaped(title)}**", *_of([block])]
    return "\n\n".join(line for line in lines if line) + "\n"


def _of(given: Iterable[blocks.Block]) -> Iterator[str]:
    """Yield the paragraphs of blocks; what can only be looked at has none, and no title either."""
    title = ""
    for block in given:
        if isinstance(block, blocks.Title):
            title = f"### {_escaped(block.text)}"
            continue
        said = list(_paragraphs(block))
        yield from filter(None, [title, *said]) if said else []
        title = ""


def _paragraphs(block: blocks.Block) -> Iterator[str]:
    match block:
        case blocks.Section():
            yield f"## {_escaped(block.heading)}"
            yield _said(block.text)
            yield from _of(block.blocks)
        case blocks.Gallery():
            for title, inner in block.items:
                yield from _of([blocks.Title(title), blocks.Box("", inner)])
        case blocks.Box():
            yield from _of(block.blocks)
        case blocks.Words():
            yield _said(block.text)
        case blocks.Tiles():
            items = [map(_escaped, item) for item in block.items]
            yield _listed(f"{name}: **{value}** {more}" for name, value, more in items)
        case blocks.Findings():
            yield "\n".join(f"- {_said(sentence)}" for sentence in block.sentences)
        case blocks.Table() if block.opened or block.sheet:
            yield _table(block)
        case blocks.Facts():
            pairs = [map(_escaped, item) for item in block.items]
            yield _listed(f"{key}: {value}" for key, value in pairs)


def _table(table: blocks.Table) -> str:
    heads = [_escaped(column.heading) for column in table.columns]
    rules = ["--:" if column.numeric else "---" for column in table.columns]
    rows = [[_escaped(cell.text) for cell in row.cells] for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in [heads, rules, *rows])


def _listed(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}".rstrip() for item in items)


def _said(sentence: str) -> str:
    if isinstance(sentence, Markup):
        return _escaped(sentence.striptags())
    return "".join(
        f"**{_escaped(piece)}**" if strong else _escaped(piece)
        for piece, strong in pieces(sentence)
    )


def _escaped(text: str) -> str:
    r"""Return text that Markdown shows as it is.

    >>> _escaped("a_b|<i>")
    'a\\_b\\|\\<i\\>'
    """
    return _ACTING.sub(r"\\\1", text)
