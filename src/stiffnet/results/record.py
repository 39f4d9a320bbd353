"""What every result can do: be saved and loaded again, and be drawn by `report`."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from rich.console import RenderableType

from stiffnet.errors import CorruptFileError
from stiffnet.files import atomic_write, read_file
from stiffnet.results.fields import record_of, row_of
from stiffnet.sealed import RESULT


class Record:
    """A result, made in one place, kept in one file, drawn in another room."""

    KIND: ClassVar[str]
    """What it is called, in its files too."""
    AGAIN: ClassVar[str]
    """How to get another one."""

    def to_row(self) -> dict[str, Any]:
        """Everything, as JSON types."""
        return row_of(self)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Make one of what `to_row` gave."""
        return record_of(row, cls)

    @property
    def title(self) -> str:
        """What it is about: the network's name, where that is known."""
        facts: Mapping[str, str] = getattr(self, "facts", {})
        return facts.get("model", "network")

    @property
    def noun(self) -> str:
        """What was looked at, in the plural: images, sentences or other samples."""
        facts: Mapping[str, str] = getattr(self, "facts", {})
        said = facts.get("samples", "images")
        return said if said in ("images", "sentences") else "samples"

    def class_name(self, label: int) -> str:
        """Return the name of a class, or its number where it has none."""
        classes: Sequence[str] = getattr(self, "classes", ())
        return classes[label] if 0 <= label < len(classes) else str(label)

    def html(self, path: str | os.PathLike[str], *, heading: str = "") -> Path:
        """Write one self-contained page that opens offline."""
        from stiffnet.report.page import page

        return atomic_write(path, page([self], heading=heading))

    def __rich__(self) -> RenderableType:
        """Return what a terminal shows."""
        from stiffnet.report.kinds import shown

        return shown(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to one JSON file; `load` gives an equal report back."""
        return atomic_write(path, self.to_json())

    def to_json(self) -> str:
        """Everything, as text.

        Arrays are base64 of little-endian numbers, so that the text stays small and nothing is
        rounded. There is no NaN outside them, and a checksum guards the rest.
        """
        return RESULT.text({"format": f"stiffnet {self.KIND}, version 1", **self.to_row()})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote.

        Raises:
            StorageError: If the file cannot be read.
            CorruptFileError: If it is no report of ours, or damaged.
        """
        raw = read_file(path, "Name a report that `save` wrote.")
        try:
            return cls.from_row(RESULT.opened(raw, f"stiffnet {cls.KIND}, version 1"))
        except (
            AssertionError, AttributeError, KeyError, RecursionError, TypeError, ValueError,
        ) as error:  # fmt: skip
            raise CorruptFileError(
                f"{path} is no {cls.KIND} of ours, or it is damaged. {cls.AGAIN}, or name a file "
                f"that `{cls.__name__}.save` wrote."
            ) from error
