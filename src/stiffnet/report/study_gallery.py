"""Pictures that the rows of a study made, beside what they were made of."""

import base64
import binascii
from typing import Any

from stiffnet.report import blocks
from stiffnet.report.text import clean
from stiffnet.results.study import StudyReport

STYLE = "style"
_JPEG = (b"\xff\xd8\xff", b"\xff\xd9")  # how such a file begins and ends
_LARGEST = 200_000  # characters of one picture
_MOST = 12  # pictures of a row that are shown


def gallery(report: StudyReport, heading: str) -> list[blocks.Block]:
    """Return a table of pictures for each group: what was given, the style, what each row made."""
    about = report.picture or {}
    found: list[blocks.Block] = [blocks.Title(heading)]
    for group in report.groups:
        first: dict[str, Any] = {}
        for line in report.lines:
            if line.group == group and line.values:
                first.setdefault(line.row, line.values)
        if not first:
            continue
        some = next(iter(first.values()))
        given = _listed(some.get(about["x"]))
        style = _listed([some.get(about["y_title"])]) * len(given)
        made = [_listed(values.get(about["y"])) for values in first.values()]
        columns = [about["x_title"], STYLE, *first]
        rows = list(zip(given, style, *made, strict=False))[:_MOST]
        titles = [clean(each, longest=40) for each in columns]
        found.append(blocks.Pictures(f"{heading}, {clean(group, longest=80)}", titles, rows))
    return found


def _listed(value: Any) -> list[str]:
    return [_checked(each) for each in value] if isinstance(value, (list, tuple)) else []


def _checked(text: Any) -> str:
    """Return a JPEG file in base64, written anew; nothing where it is none."""
    if not isinstance(text, str) or len(text) > _LARGEST:
        return ""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return ""
    whole = data.startswith(_JPEG[0]) and data.endswith(_JPEG[1])
    return base64.b64encode(data).decode() if whole else ""
