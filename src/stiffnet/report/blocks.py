"""What a page is made of: small records that one template renders, whatever the result was."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import plotly.graph_objects as go
from markupsafe import Markup

from stiffnet.report.text import Sentence

Text = str | Sentence
"""Plain text, a sentence with emphasis, or markup of our own; all but the last is escaped."""


@dataclass(frozen=True)
class Block:
    """A piece of a page."""

    part: ClassVar[str]
    """What the template calls it."""

    @property
    def inside(self) -> tuple["Block", ...]:
        """The blocks that it holds."""
        return ()


@dataclass(frozen=True)
class Title(Block):
    """A heading inside a section."""

    part = "title"
    text: str
    look: str = ""


@dataclass(frozen=True)
class Words(Block):
    """A paragraph."""

    part = "words"
    text: Text
    look: str = ""


@dataclass(frozen=True)
class Tiles(Block):
    """A few numbers: the name, the value, and what it is made of."""

    part = "tiles"
    items: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Findings(Block):
    """What the numbers say, in sentences."""

    part = "findings"
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True)
class Plot(Block):
    """A figure with its data; `switch` lets the reader choose a logarithmic axis."""

    part = "plot"
    place: str
    figure: go.Figure
    label: str
    title: str = ""
    note: str = ""
    switch: bool = False

    @property
    def logarithmic(self) -> bool:
        """Whether its axis is so at first."""
        return bool(self.figure.layout.yaxis.type == "log")


@dataclass(frozen=True)
class Column:
    """A heading; numbers are aligned to the right and sorted by value."""

    heading: str
    numeric: bool = True
    hint: str = ""


@dataclass(frozen=True)
class Cell:
    """What is shown, what it is sorted by, and the length of its bar as a share of one."""

    text: str
    value: float | None = None
    bar: float | None = None


@dataclass(frozen=True)
class Row:
    """Cells from left to right; a quiet row is one that does not count, a marked one stands out."""

    cells: tuple[Cell, ...]
    quiet: bool = False
    marked: bool = False


@dataclass(frozen=True)
class Table(Block):
    """A table that sorts; a `sheet` is a small one that is always open and stays as it is."""

    part = "table"
    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    opened: bool = False
    sheet: bool = False


@dataclass(frozen=True)
class Definitions(Block):
    """Words and what they mean, in markup of our own."""

    part = "definitions"
    items: tuple[tuple[str, Markup], ...]


@dataclass(frozen=True)
class Facts(Block):
    """Where numbers come from."""

    part = "facts"
    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Box(Block):
    """Blocks that belong together, by the look that the style sheet has for them."""

    part = "box"
    look: str
    blocks: tuple[Block, ...]

    @property
    def inside(self) -> tuple[Block, ...]:
        """The blocks in it."""
        return self.blocks


@dataclass(frozen=True)
class Gallery(Block):
    """Named boxes of which one is shown at a time: turned by buttons, or chosen if they are few."""

    part = "gallery"
    name: str
    label: str
    items: tuple[tuple[str, tuple[Block, ...]], ...]
    panels: bool = False

    @property
    def inside(self) -> tuple[Block, ...]:
        """The blocks of all boxes."""
        return tuple(block for _, blocks in self.items for block in blocks)


@dataclass(frozen=True)
class Section(Block):
    """A part of a page with a heading of its own; `link` is what the top of the page calls it."""

    part = "section"
    name: str
    heading: str
    link: str
    blocks: tuple[Block, ...]

    @property
    def inside(self) -> tuple[Block, ...]:
        """The blocks in it."""
        return self.blocks


@dataclass(frozen=True)
class Article:
    """What is said of one result right below the heading of a page."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Part:
    """What a result, or several of one kind, put on a page.

    A page gathers the parts of all its results: first the articles, then the sections, then the
    tables, the definitions and the facts of everything.
    """

    kind: str
    """What such a page is called."""
    sections: tuple[Section, ...]
    lead: tuple[Block, ...] = ()
    """What compares them, above the articles."""
    articles: tuple[Article, ...] = ()
    tables: tuple[tuple[str, tuple[Block, ...]], ...] = ()
    """A title and its tables, for each result."""
    definitions: tuple[tuple[str, Markup], ...] = ()
    facts: tuple[tuple[str, Facts], ...] = ()


def all_blocks(blocks: tuple[Block, ...]) -> Iterator[Block]:
    """Yield blocks and everything in them, in the order of the page."""
    for block in blocks:
        yield block
        yield from all_blocks(block.inside)
