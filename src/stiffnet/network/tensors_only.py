"""`torch.load` for tensors and plain values: nothing that a file names is ever imported or called.

This file also runs as a program, in a process of its own with little memory and time, for torch's
legacy format: there a file says how much memory to take before anything can be checked. It imports
nothing of ours, so that it starts fast. ``python tensors_only.py FILE FOLDER`` writes what FILE
holds to FOLDER: the tensors as safetensors, and the rest, or what is wrong, as JSON.
"""

import json
import pickle
import re
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import safetensors.torch
import torch
from torch import Tensor

TENSORS, ANSWER = "tensors.safetensors", "answer.json"
DEEPEST = 8  # mappings within mappings
MOST = 1_000_000  # values of a file
SPARE = 512 * 2**20  # bytes beyond those that a file explains
TIMES = 4  # a file's size in memory: read, and copied where tensors overlap
PLAIN = (  # classes of values that people save beside weights; none of them is ever made
    "argparse.Namespace",
    "numpy.dtype",
    "numpy._core.multiarray.scalar",
    "numpy.core.multiarray.scalar",
    "pathlib.Path",
    "pathlib.PosixPath",
    "pathlib.WindowsPath",
    "pathlib._local.PosixPath",
)


class Passed:
    """Stands for a value that is read past: it keeps nothing of it."""

    kind = "value"

    def __new__(cls, *_: object) -> "Passed":
        """Take whatever the file says."""
        return super().__new__(cls)

    def __setstate__(self, _: object) -> None:
        pass


class NotPlain(Exception):
    """A file that names a class or function other than tensors and plain values."""


def load_tensors(file: str | Path | IO[bytes], *, mmap: bool = False) -> object:
    """Return what `torch.save` wrote, on the CPU.

    Raises:
        NotPlain: If the file names anything that could run code; it says what.
        Exception: Of any kind, if the file is damaged.
    """
    known = torch.serialization.safe_globals([(Passed, name) for name in PLAIN])
    with warnings.catch_warnings(), known:
        warnings.simplefilter("ignore")  # on the writer's choice of protocol, for one
        try:
            return torch.load(file, map_location="cpu", weights_only=True, mmap=mmap)
        except pickle.UnpicklingError as error:
            found = re.search(r"GLOBAL ([\w.]+)", str(error))
            raise NotPlain(found[1] if found else "") from error


def largest_memory(size: int) -> int:
    """How many bytes a file of `size` bytes may need when it is read."""
    return TIMES * size + SPARE


def main(file: str, folder: str) -> None:
    """Read a file under a limit of memory, and write what it holds."""
    source, target = Path(file), Path(folder)
    most = largest_memory(source.stat().st_size)
    _limit(most)
    try:
        tensors: list[Tensor] = []
        with source.open("rb") as stream:  # a path could go to another reader by its suffix
            content = _described(load_tensors(stream), tensors, [0])
        needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        if needed > most:
            raise MemoryError
        plain = torch.contiguous_format  # in memory of its own, as safetensors wants it
        copies = (tensor.detach().clone(memory_format=plain) for tensor in tensors)
        named = {str(number): tensor for number, tensor in enumerate(copies)}
        safetensors.torch.save_file(named, target / TENSORS)
        answer = {"content": content}
    except NotPlain as error:
        answer = {"unsafe": str(error)}
    except MemoryError:
        answer = {"large": ""}
    except OSError as error:
        answer = {"storage": str(error.strerror or error)}
    except Exception as error:  # a hostile file finds many ways
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        large = "allocat" in str(error).lower()
        answer = {"large" if large else "damaged": first.rstrip(".! ")}
    (target / ANSWER).write_text(json.dumps(answer))


def _limit(most: int) -> None:
    """Allow this process no more memory than it has, and `most`, where the system can do that."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        top = pages * resource.getpagesize() + most
        resource.setrlimit(resource.RLIMIT_AS, (top, top))
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):
        return  # not Linux: the time is limited all the same


def _described(value: object, tensors: list[Tensor], seen: list[int], depth: int = 0) -> Any:
    """Write values as JSON: a mapping as ``{"map": ...}``, a tensor as its number."""
    seen[0] += 1
    if seen[0] > MOST:
        raise ValueError("it holds too many values")
    if isinstance(value, Mapping) and depth < DEEPEST and all(isinstance(k, str) for k in value):
        return {"map": {k: _described(v, tensors, seen, depth + 1) for k, v in value.items()}}
    if isinstance(value, Tensor) and _is_storable(value):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if isinstance(value, Tensor):
        return {"other": f"{value.dtype} tensor".replace("torch.", "")}
    return {"other": type(value).__name__}


def _is_storable(value: Tensor) -> bool:
    return (
        value.layout == torch.strided
        and value.device.type == "cpu"
        and not value.is_quantized
        and value.dtype != torch.complex128
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
