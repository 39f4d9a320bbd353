"""Which files are exports of ours, by a mark inside them: those may be replaced, and no others."""

import json
import os
import zipfile
from pathlib import Path
from typing import Literal

from stiffnet.errors import ExportError

MARK = {"written_by": "stiffnet"}
"""Among the facts in every file that is exported here."""
ABOUT = "about.json"  # in a program, the facts about it
LARGEST = 2**20  # bytes of such facts

Kind = Literal["onnx", "program"]
NAMES = {"onnx": "an ONNX file", "program": "a program"}


def refuse_replacing(path: str | os.PathLike[str], kind: Kind) -> None:
    """See that nothing is where a file is to be written, or an earlier export of the same kind."""
    there = Path(path)
    if not os.path.lexists(there):
        return
    if not there.is_file() or not (_is_onnx(there) if kind == "onnx" else _is_program(there)):
        raise ExportError(
            f"{there} exists already and is not {NAMES[kind]} that stiffnet wrote; it was not "
            "replaced. Choose another name, or move it away first."
        )


def _is_onnx(path: Path) -> bool:
    import onnx

    try:
        model = onnx.load(path, load_external_data=False)
    except Exception:  # of protobuf: it is something else, or damaged
        return False
    facts = {entry.key: entry.value for entry in model.metadata_props}
    return facts.items() >= MARK.items()


def _is_program(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if Path(name).name == ABOUT]
            with archive.open(names[0]) as stream:
                facts = json.loads(stream.read(LARGEST))
    except (OSError, ValueError, LookupError, zipfile.BadZipFile):
        return False
    return isinstance(facts, dict) and facts.items() >= MARK.items()
