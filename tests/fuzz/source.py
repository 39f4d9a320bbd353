"""Python source that is written twice: as a user would write it, and as the reference.

Lines are common to both, or marked as belonging to one of them only. The reference calls ``AT`` at
every step (see `fuzz.oracle`); apart from that, both compute the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

PLAIN, REFERENCE = "PLAIN|", "REFERENCE|"


def indented(lines: Iterable[str], by: int = 1) -> list[str]:
    """Shift lines to the right, their marks excepted."""
    return [f"{mark}{'    ' * by}{text}" for mark, text in map(_parted, lines)]


def rendered(lines: Iterable[str], mark: str) -> list[str]:
    """The lines of one of both versions."""
    return [text for found, text in map(_parted, lines) if found in ("", mark)]


def _parted(line: str) -> tuple[str, str]:
    for mark in (PLAIN, REFERENCE):
        if line.startswith(mark):
            return mark, line[len(mark) :]
    return "", line


def both(template: str, rate: str, gated: str) -> list[str]:
    """A line in which the rate is called ``RATE``: as it is, and gated in the reference."""
    return [PLAIN + template.replace("RATE", rate), REFERENCE + template.replace("RATE", gated)]


@dataclass(frozen=True)
class Layout:
    """Where the axes of a state are."""

    name: str
    dims: int
    """Number of axes besides batch and channels."""
    channels_first: bool
    sequence_first: bool = False

    @property
    def axis(self) -> int:
        """Of the channels."""
        return 1 if self.channels_first else -1

    @property
    def positions(self) -> tuple[int, ...]:
        """Axes that are neither batch nor channels."""
        if self.sequence_first:
            return (0,)
        first = 2 if self.channels_first else 1
        return tuple(range(first, first + self.dims))

    @property
    def ones(self) -> str:
        """Index that brings a factor a channel, (N, C), to the state's number of axes."""
        if self.sequence_first:
            return ""
        nones = ", ".join(["None"] * self.dims)
        return f"[:, :, {nones}]" if self.channels_first else f"[:, {nones}]"

    def factor(self, width: int) -> str:
        """Shape of a parameter with one number a channel."""
        return str((width, *(1,) * self.dims)) if self.channels_first else f"({width},)"


LAYOUTS = {
    "map": Layout("map", 2, True),
    "tokens": Layout("tokens", 1, False),
    "last": Layout("last", 2, False),
    "line": Layout("line", 1, True),
    "volume": Layout("volume", 3, True),
    "sequence": Layout("sequence", 1, False, sequence_first=True),
}


@dataclass
class Code:
    """A class of modules that is being written."""

    name: str
    rng: Random
    layout: Layout
    width: int
    base: str = "nn.Module"
    fields: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    above: list[str] = field(default_factory=list)
    """What the module file has above the class: helpers, classes of children."""
    live: list[tuple[str, str]] = field(default_factory=list)
    """Settings that can be changed at any time, and other values for them."""
    traits: set[str] = field(default_factory=set)
    """What is special about it, for the tally and the choice of laws."""
    decorator: str = ""
    signature: str = "x"
    result: str = "tensor"
    steps: int = 0
    _names: int = 0

    def fresh(self, stem: str) -> str:
        """A name that nothing else has here."""
        self._names += 1
        return f"{stem}{self._names}"

    def layer(self, made: str) -> str:
        """Add a child, and return the expression for it."""
        name = self.fresh("m")
        self.fields.append(f"self.{name} = {made}")
        return f"self.{name}"

    def setting(self, value: str, other: str) -> str:
        """Add a setting that the code reads when it runs, and return the expression for it."""
        name = self.fresh("setting")
        kind = self.rng.choice(("attribute", "dictionary", "class"))
        self.traits.add("setting")
        if kind == "dictionary":
            self.fields.append(f"self.{name} = {{'k': {value}}}")
            self.live.append((f"{name}['k']", other))
            return f"self.{name}['k']"
        if kind == "class":
            self.methods = [f"{name} = {value}", *self.methods]
        else:
            self.fields.append(f"self.{name} = {value}")
        self.live.append((name, other))
        return f"self.{name}"

    def adopt(self, child: "Code", made: str | None = None) -> str:
        """Put a child of a class of its own in, and return the expression for it."""
        self.above += child.lines()
        expression = self.layer(made or f"{child.name}()")
        name = expression.removeprefix("self.")
        self.live += [(f"{name}.{target}", value) for target, value in child.live]
        self.traits |= child.traits
        return expression

    def lines(self) -> list[str]:
        """The class, below its helpers."""
        head = [f"class {self.name}({self.base}):"]
        first = ["def __init__(self):", *indented(["super().__init__()", *self.fields]), ""]
        forward = [f"def forward(self, {self.signature}):", *indented(self.body), ""]
        if self.decorator:
            forward = [self.decorator, *forward]
        parts = [*first, *self.methods, "", *forward] if self.body else [*first, *self.methods]
        return [*self.above, *head, *indented(parts), ""]
