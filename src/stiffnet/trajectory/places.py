"""Where in the source the additions of a pass stand: which expression of which function."""

import itertools
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.trajectory.functions import operands_of
from stiffnet.trajectory.recorder import Numbered, Place


@dataclass(frozen=True)
class Line:
    """One place in running code: a function's code, and the range of an expression in its file."""

    code: CodeType
    start: tuple[int, int] | None  # line, column in bytes of UTF-8; None if Python keeps none
    end: tuple[int, int] | None
    own: bool  # the function was called with the module as its first argument, as methods are

    def __str__(self) -> str:
        line = self.start[0] if self.start else self.code.co_firstlineno
        return f"{self.code.co_qualname}, {self.code.co_filename}, line {line}"


@dataclass(frozen=True)
class Met:
    """One addition of a pass."""

    lines: tuple[Line, ...]  # from the addition outwards, as far as the module's `forward`
    call: int  # which call of the module it happened in, from 0
    shapes: tuple[tuple[int, ...], ...]  # of its operands; empty for one that is no tensor
    dtypes: tuple[torch.dtype | None, ...] = ()


@dataclass
class Places(Numbered):
    """Meets the additions in the own code of some modules; numbered as a `Site` numbers them."""

    model: nn.Module
    wanted: Collection[str]
    met: dict[tuple[str, int], Met] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(self.model)

    def meet(self, place: Place, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note an addition before it runs."""
        path, kind, number = place
        if kind == "add" and path in self.wanted:
            operands = operands_of(args, kwargs)
            shapes = tuple(tuple(v.shape) if isinstance(v, Tensor) else () for v in operands)
            dtypes = tuple(getattr(value, "dtype", None) for value in operands)
            lines = _lines(self.running[-1], sys._getframe(_OURS))
            self.met[path, number] = Met(lines, self.counts[path, "call"] - 1, shapes, dtypes)
            self.look(path, number, operands)
        return func(*args, **kwargs)

    def look(self, path: str, number: int, operands: tuple[Any, ...]) -> None:
        """Look at the operands of an addition that was noted."""


_OURS = 3  # frames between the code that adds and `meet`


def _lines(module: nn.Module, frame: FrameType | None) -> tuple[Line, ...]:
    """Go outwards from a frame, to the call of the module that it runs in."""
    lines = []
    while frame is not None and frame.f_code is not nn.Module._call_impl.__code__:
        lines.append(_line(module, frame))
        frame = frame.f_back
    return tuple(lines)


def _line(module: nn.Module, frame: FrameType) -> Line:
    code = frame.f_code
    where = itertools.islice(code.co_positions(), frame.f_lasti // 2, None)
    first, last, begin, stop = next(where, (None, None, None, None))
    names = code.co_varnames[: code.co_argcount]
    own = bool(names) and frame.f_locals.get(names[0]) is module
    if first is None or last is None or begin is None or stop is None:
        return Line(code, None, None, own)
    return Line(code, (first, begin), (last, stop), own)
