"""Running a part of a network again, with another value in the place of one that it handled.

A pass is watched by `Addresses`, which know how its values are met again: by the call, and as which
argument or result there. `Replay` puts another value at such an address.
"""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor, nn

from stiffnet.errors import StepError
from stiffnet.nested import mapped, tensors_in
from stiffnet.trajectory.batch import Example
from stiffnet.trajectory.functions import name_of, operands_of
from stiffnet.trajectory.graph import Frame, Node, Watch
from stiffnet.trajectory.memory import memory_of, reached
from stiffnet.trajectory.origins import Below
from stiffnet.trajectory.recorder import Numbered, Place, scale_of

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
        self.found: dict[Node, Address] = {}
        """How values are met again; one that is not here cannot be."""
        self._calls: dict[Frame, Call] = {}
        self._called: Counter[str] = Counter()
        self._results: Counter[tuple[Frame, str]] = Counter()

    def __enter__(self) -> Self:
        super().__enter__()
        for module in self.paths:
            if not isinstance(module, torch.jit.ScriptModule):
                self.hook_before(module, self._given)
        return self

    def around(self, node: Node) -> tuple[Call, ...]:
        """The calls in which a value is handled, from the innermost outwards."""
        return tuple(self._calls[frame] for frame in node.frame.up_to(None))

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
            if node is not None and node.frame is frame and node not in self.found:
                number = self._results[frame, name]
                self.found[node] = Address(self._calls[frame], name, number, part)
        self._results[frame, name] += 1


@dataclass(frozen=True)
class Plan:
    """What to put where, and what to take."""

    of: str
    address: Address
    addition: Place
    rate_operand: int
    gates: Mapping[Place, int]
    """Products that scale the rate, and which of their operands is scaled."""
    around: tuple[Call, ...]
    """The calls that may be run again, from the innermost outwards; the last is the network's."""


@dataclass(frozen=True)
class Memory:
    """What was there when a call of a pass began."""

    path: str
    given: Example
    counts: Mapping[tuple[str, str], int] = field(default_factory=dict)


class Replay(Numbered):
    """Runs one call of a pass again, as far as an addition, with x in the place of its input.

    With `keep`, it remembers what the calls inside of that call are given, to run them again.
    """

    def __init__(self, model: nn.Module, plan: Plan, memory: Memory, *, keep: bool = False) -> None:
        super().__init__(model, model.get_submodule(memory.path), memory.counts)
        self.kept: dict[Call, Memory] = {}
        self.input: Tensor
        """What was there, of a run without x."""
        self.original: Tensor | None = None
        """What was there before x took its place, and is read no longer."""
        self.plan, self._memory, self._keep = plan, memory, keep
        self._frames: list[Call] = []
        self._results: Counter[str] = Counter()
        self._added = False
        self._x: Tensor | None = None

    def run(self, x: Tensor | None = None) -> Tensor:
        """Return what the plan asks for at x, or where the pass was if there is none."""
        self._x = None if x is None else x.clone()  # which code may write into
        wanted = {call[0] for call in self.plan.around} if self._keep else set()
        paths = wanted | {self.plan.address.call[0]}
        given = copied(self._memory.given)
        try:
            with self:
                for path in paths:
                    self.hook_before(self.model.get_submodule(path), self._given)
                given.on(self.root)
        except _ReachedError as reached:
            return reached.value
        raise StepError(
            f"The addition in {self.plan.addition.module!r} was not reached again. Find the steps "
            "anew with `stiffnet.steps`."
        )

    def enter(self, path: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Follow which call of which module runs."""
        super().enter(path, module, args)
        self._frames.append((path, self.counts[path, "call"] - 1))

    def _given(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Keep what a call is given, and put x there if it begins with an argument."""
        call = self._frames[-1]
        if self._keep and call in self.plan.around:
            before = {**self.counts, (call[0], "call"): call[1]}
            self.kept[call] = Memory(call[0], copied(Example(args, kwargs)), before)
        if call == self.plan.address.call and self.plan.address.name == "argument":
            return self._put((args, kwargs))
        return None

    def leave(self, module: nn.Module, output: Any) -> Any:
        """Put x where it is the result of a module; take what a whole block returns."""
        path, _ = self._frames.pop()
        super().leave(module, output)
        if output is None:
            return None
        if self._added and path == self.plan.addition.module:
            raise _ReachedError(next(tensors_in(output)))
        return self._result(f"call {path}", output)

    def function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Put x where it is the result of a function."""
        return self._result(name_of(func), super().function(func, args, kwargs))

    def _result(self, name: str, result: Any) -> Any:
        address = self.plan.address
        if not self._frames or self._frames[-1] != address.call or name != address.name:
            return result
        self._results[name] += 1
        return self._put(result) if self._results[name] == address.number + 1 else result

    def _put(self, given: Any) -> Any:
        old = list(tensors_in(given))[self.plan.address.part]
        self.original = old
        if self._x is None:
            with torch._C.DisableTorchFunction():  # these are none of the network's functions
                self.input = old.detach().clone()
            return given
        new = self._x
        changed = mapped(given, lambda value: new if value is old else value)
        if not any(tensor is new for tensor in tensors_in(changed)):
            raise StepError(
                f"A value in {self.plan.address.call[0]!r} is held by an object into which no "
                "other can be put. Choose another step."
            )
        return changed

    def meet(self, place: Place, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Leave gates out of a rate; end at the addition."""
        of, operand, operands = self.plan.of, self.plan.rate_operand, operands_of(args, kwargs)
        if place in self.plan.gates and of == "rate":
            return operands[self.plan.gates[place]]
        if place != self.plan.addition:
            return func(*args, **kwargs)
        self._added = True
        if of == "block":
            return func(*args, **kwargs)
        scale = scale_of(func, {} if of == "rate" else kwargs)  # of a rate, its sign alone
        if of == "sum":
            raise _ReachedError(torch.add(*operands, alpha=scale))  # never in place
        value = operands[operand]
        raise _ReachedError(value * scale if operand == 1 and scale != 1.0 else value.clone())


class _ReachedError(BaseException):
    """Ends a run; none of the network's code may take it for an error of its own."""

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.value = value


def copied(values: Any) -> Any:
    """Copy the tensors in nested containers, each once, so that no run writes into what is kept."""
    copies: dict[int, Tensor] = {}

    def copy(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return copies.setdefault(id(value), value.detach().clone())

    with torch._C.DisableTorchFunction():
        return mapped(values, copy)


def nothing_else_reads(replay: Replay, before: Replay) -> Below:
    """Refuse a run that reads what x replaced: by another name, or in code that is not shown.

    What the run `before` replaced may still be kept somewhere, and counts too.
    """

    def look(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        olds = [r.original for r in (replay, before) if r.original is not None]
        read = list(tensors_in((args, kwargs))) if replay.original is not None else []
        if any(_overlap(old, tensor) for old in olds for tensor in read):
            raise StepError(
                f"The code of {replay.plan.address.call[0]!r} reads the input of a step by another "
                "name too (a view, an attribute), or where it cannot be followed, so that it "
                "cannot be varied alone. Choose another step."
            )

    return Below(look)


def _overlap(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have a number in common."""
    memory = memory_of(one)
    shared = memory is not None and memory == memory_of(other)
    return one is other or (shared and bool(reached(one, one, [other])))
