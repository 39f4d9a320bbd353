"""How the values of a pass are met again: by the call, and as which argument or result there."""

import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn

from stiffnet.nested import tensors_in
from stiffnet.trajectory.functions import name_of
from stiffnet.trajectory.graph import Frame, Node, Watch

Call = tuple[str, int]
"""One call of a module: its path, and which of its calls in the pass it is, from 0."""


@dataclass(frozen=True)
class Address:
    """How a value is met again: in which call, and as which argument or result of its own code."""

    call: Call
    name: str  # "argument", a function's name, or a called module's path behind "call "
    number: int = 0  # which of the results of that name
    part: int = 0  # which of the tensors there


class Addresses(Watch):
    """Watches a pass, and knows how its values can be met again."""

    def __init__(self, model: nn.Module, inputs: Any) -> None:
        super().__init__(model, inputs, closely=True)
        self._found: dict[Node, Address] = {}
        self._calls: dict[Frame, Call] = {}
        self._called: Counter[str] = Counter()
        self._results: Counter[tuple[Frame, str]] = Counter()

    def __enter__(self) -> Self:
        super().__enter__()
        for module in self.paths:  # hooks on the modules themselves: only such see keywords
            if not isinstance(module, torch.jit.ScriptModule):
                hook = module.register_forward_pre_hook(self._given, with_kwargs=True)
                self.watching.enter_context(hook)
        return self

    def of(self, node: Node) -> Address | None:
        """How a value is met again; None where it cannot be."""
        return self._found.get(node)

    def around(self, node: Node) -> tuple[Call, ...]:
        """The calls in which a value is handled, from the innermost outwards."""
        calls = []
        frame: Frame | None = node.frame
        while frame is not None:
            calls.append(self._calls[frame])
            frame = frame.parent
        return tuple(calls)

    def enter(self, path: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Number the calls of every module."""
        super().enter(path, module, args)
        self._calls[self._stack[-1]] = path, self._called[path]
        self._called[path] += 1

    def _given(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if threading.get_ident() != self._thread:
            return
        with torch._C.DisableTorchFunction():
            self._note(self._stack[-1], "argument", (args, kwargs))

    def leave(self, module: nn.Module, output: Any) -> None:
        """Note what a module's result is in the code that called it."""
        frame = self._stack[-1]
        super().leave(module, output)
        if frame.parent is not None:
            self._note(frame.parent, f"call {frame.path}", output)

    def saw(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Note which result of its name a function's is."""
        super().saw(func, args, kwargs, result)
        if self._stack and self._numbering:
            self._note(self._stack[-1], name_of(func), result)

    def _note(self, frame: Frame, name: str, values: Any) -> None:
        for part, tensor in enumerate(tensors_in(values)):
            node = frame.find(tensor)
            if node is not None and node.frame is frame and node not in self._found:
                number = self._results[frame, name]
                self._found[node] = Address(self._calls[frame], name, number, part)
        self._results[frame, name] += 1
