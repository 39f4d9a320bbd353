"""What a page is made of: small records that one template renders, whatever the result was."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go


@dataclass(frozen=True)
class Block:
    """A piece of a page. Those that have `blocks` hold others."""

    @property
    def part(self) -> str:
        """What the template calls it."""
        return type(self).__name__.lower()


@dataclass(frozen=True)
class Title(Block):
    """A heading inside a section."""

    text: str


@dataclass(frozen=True)
class Words(Block):
    """A paragraph: text, which is escaped, or markup of our own."""

    text: str
    look: str = ""


@dataclass(frozen=True)
class Tiles(Block):
    """A few numbers: the name, the value, and what it is made of."""

    items: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Findings(Block):
    """What the numbers say, in sentences."""

    sentences: Sequence[str]


@dataclass(frozen=True)
class Plot(Block):
    """A figure with its data; `switch` lets the reader choose a logarithmic axis."""

    place: str
    figure: go.Figure
    label: str
    title: str = ""
    note: str = ""
    switch: bool = False


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
    place: str = ""
    """The section of the page that it leads to."""


@dataclass(frozen=True)
class Row:
    """Cells from left to right; a quiet row is one that does not count, a marked one stands out."""

    cells: Sequence[Cell]
    quiet: bool = False
    marked: bool = False


@dataclass(frozen=True)
class Table(Block):
    """A table that sorts, in a drawer; a `sheet` is a small one that is open and stays as it is."""

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    note: str = ""
    opened: bool = False
    sheet: bool = False


@dataclass(frozen=True)
class Reading(Block):
    """What the words of a page mean, from templates of these names."""

    names: Sequence[str]


@dataclass(frozen=True)
class Facts(Block):
    """Where numbers come from."""

    items: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Box(Block):
    """Blocks that belong together, by the look that the style sheet has for them."""

    look: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Gallery(Block):
    """Titled boxes of which one is shown at a time: turned by buttons, or `panels` to choose."""

    name: str
    label: str
    items: Sequence[tuple[str, Sequence[Block]]]
    panels: bool = False

    @property
    def blocks(self) -> Sequence[Block]:
        """The blocks of all boxes."""
        return [block for _, blocks in self.items for block in blocks]


@dataclass(frozen=True)
class Pictures(Block):
    """Small pictures in rows under the same headings: JPEG files in base64; nothing for none."""

    label: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Section(Block):
    """A part of a page with a heading of its own; `link` is what the top of the page calls it.

    A section without one is led to from elsewhere on the page.
    """

    name: str
    heading: str
    link: str
    text: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Part:
    """What a result, or several of one kind, put on a page, which gathers the parts of all."""

    kind: str
    """What such a page is called."""
    sections: Sequence[Section]
    lead: Sequence[Block] = ()
    """What compares them, above the articles."""
    articles: Sequence[tuple[str, Sequence[Block]]] = ()
    """A title and what is said right below the heading of the page, for each result."""
    tables: Sequence[tuple[str, Sequence[Block]]] = ()
    reading: Sequence[str] = ()
    facts: Sequence[tuple[str, Facts]] = ()


def all_blocks(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield blocks and everything in them, in the order of the page."""
    for block in blocks:
        yield block
        yield from all_blocks(getattr(block, "blocks", ()))
