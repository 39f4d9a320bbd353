"""What one forward pass did: for every module call, the graph of its own few lines.

The pass is watched while it runs, on real tensors, so data-dependent code, unusual containers and
residuals that come in as arguments are all seen; nothing is traced symbolically. Each module call
is a `Frame`. Its `Node`s are the values that its own code handled: arguments, results of tensor
functions, and results of the modules that it called. Those have frames of their own.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor, nn

from stiffnet.nested import tensors_in
from stiffnet.trajectory.functions import (
    ADDITIONS,
    FUSED,
    KINDS,
    LINEAR,
    PERMUTATIONS,
    POOLINGS,
    PRODUCTS,
    SAME_VALUES,
    name_of,
    operands_of,
    order_of,
    values_read,
)
from stiffnet.trajectory.memory import is_twin, memory_of, part_at, reached
from stiffnet.trajectory.origins import Below, Origins
from stiffnet.trajectory.recorder import ModuleStack
from stiffnet.trajectory.step import ATTACHED


@dataclass(eq=False, slots=True)
class Node:
    """One value in the code of one module call."""

    frame: "Frame"
    index: int
    time: int  # order over the whole pass
    op: str  # "argument", "call", or a function's name
    shape: tuple[int, ...]
    floating: bool = True
    inputs: tuple["Node", ...] = ()
    operands: tuple["Node | None", ...] = ()  # of an addition or product; None for a constant
    number: int = -1  # which addition or product of this module's own code in this pass
    outer: "Node | None" = None  # for an argument: the value it is in the calling code
    inner: "Node | None" = None  # for a call: the value it is in the called code
    called: "Frame | None" = None
    weight: int = 0  # how many non-linear functions it took to make it from its inputs
    sums: bool = False  # made by adding several values that depend on the input
    version: int = 0  # of the tensor when it became this value; a write in place raises it
    order: tuple[int, ...] = ()  # of a permutation: where each axis was before
    before: int = field(init=False)  # bit i is set where node i is this one or went into it
    pooled: bool = field(init=False)  # all that went into it was pooled, whatever the map's size

    def __post_init__(self) -> None:
        self.before = 1 << self.index
        for node in self.inputs:
            self.before |= node.before
        same = self.outer or self.inner
        if self.op == "argument" or same is not None:
            self.pooled = same is not None and same.pooled
        else:
            pools = self.op in POOLINGS and len(self.inputs) == 1
            self.pooled = pools or all(node.pooled for node in self.inputs)

    def __repr__(self) -> str:
        return f"<{self.index} {self.op} {self.shape}>"


Sharing = dict[int | None, dict[int, Tensor]]


@dataclass(eq=False)
class Frame:
    """One call of one module, and the values that its own code handled."""

    path: str
    module: nn.Module
    parent: "Frame | None"
    clock: Iterator[int]
    nodes: list[Node] = field(default_factory=list)
    returned: list[Node] = field(default_factory=list)
    result_shapes: list[tuple[int, ...]] = field(default_factory=list)
    given: int = 0  # how many of the nodes are what the call was given
    newest: dict[int, Node] = field(default_factory=dict)  # of every tensor, in whatever frame
    sharing: Sharing = field(default_factory=dict)  # tensors by their memory, in whatever frame
    _values: dict[int, tuple[Tensor, Node | None]] = field(default_factory=dict)

    def new(self, op: str, tensor: Tensor, **details: Any) -> Node:
        """Append a node; it names `tensor`, which is kept alive so that its id stays its own."""
        shape, floating = tuple(tensor.shape), tensor.is_floating_point()
        node = Node(self, len(self.nodes), next(self.clock), op, shape, floating, **details)
        node.version = version_of(tensor)
        self.nodes.append(node)
        self.name(tensor, node)
        return node

    def name(self, tensor: Tensor, node: Node | None) -> None:
        """Say which node `tensor` is from now on; None where it depends on no input any more."""
        tensor = unwrapped(tensor)
        self._values[id(tensor)] = (tensor, node)
        self.keep(tensor)
        if node is None:
            self.newest.pop(id(tensor), None)
        elif node.op != "argument" and node.frame is self:
            self.newest[id(tensor)] = node

    def keep(self, tensor: Tensor) -> None:
        """Know that `tensor` lies where it does, should something be written there."""
        self.sharing.setdefault(memory_of(tensor), {})[id(tensor)] = tensor

    def find(self, tensor: Tensor) -> Node | None:
        """Return the node of a tensor that depends on the network's input, else None."""
        tensor = unwrapped(tensor)
        newest = self.newest.get(id(tensor))
        known, node = self._values.get(id(tensor), (None, None))
        if known is not None and (newest is None or node is None or newest.time <= node.time):
            return node
        if newest is not None and (frames := newest.frame.up_to(self)):
            for frame in frames:  # a module kept it, or wrote into it, and did not return it
                assert frame.parent is not None
                newest = frame.call(frame.parent, newest, tensor)
            return newest
        if known is not None:
            return node
        outer = self.parent.find(tensor) if self.parent else None
        return None if outer is None else self.new("argument", tensor, outer=outer)

    def up_to(self, outer: "Frame | None") -> list["Frame"]:
        """This frame and those around it, up to one without it; none if it is not among them.

        Up to none of them, all are.
        """
        frames: list[Frame] = []
        frame: Frame | None = self
        while frame is not None and frame is not outer:
            frames.append(frame)
            frame = frame.parent
        return frames if frame is outer else []

    def call(self, parent: "Frame", inner: Node | None, tensor: Tensor) -> Node:
        """Add what this module made to the graph of the code that called it.

        What an attached module was handed by those before it (DIA) only chooses its step size.
        """
        made_from = [n for n in self.nodes if inner is None or inner.before >> n.index & 1]
        last = self.given if hasattr(self.module, ATTACHED) else len(self.nodes)
        inputs = tuple(n.outer for n in made_from if n.outer is not None and n.index < last)
        return parent.new(
            "call",
            tensor,
            inputs=inputs,
            inner=inner,
            called=self,
            weight=1 if inner is None else sum(n.weight for n in made_from),
            sums=any(n.sums for n in made_from),
        )

    def close(self) -> None:
        """Let the tensors go; the graph stays."""
        self._values.clear()


def unwrapped(tensor: Tensor) -> Tensor:
    """Return the whole tensor, of which `torch.vmap` and its like show one sample at a time."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def version_of(tensor: Tensor) -> int:
    """How often a tensor, or what it shares its numbers with, was written in place."""
    return 0 if tensor.is_inference() else tensor._version


class Watch(ModuleStack):
    """Builds a `Frame` for every module call of the forward passes that run inside it.

    `inputs` are what the network will be given. If asked to look `closely`, it follows values also
    through code that runs no tensor function of Python's, such as functions of TorchScript. What
    such code adds and multiplies has no number.
    """

    def __init__(self, model: nn.Module, inputs: Any, *, closely: bool = False) -> None:
        super().__init__(model)
        self._inputs = inputs
        self.origins = Origins(model)
        self._below = Below(self._saw_below) if closely else None
        self._calling = False  # a tensor function runs
        self._numbering = True
        self.frames: list[Frame] = []  # in order of their ends
        self.totals: Counter[tuple[str, str]] = Counter()  # of each kind, in a module's code so far
        self._stack: list[Frame] = []
        self._clock = itertools.count()
        self._newest: dict[int, Node] = {}
        self._sharing: Sharing = {}

    def __enter__(self) -> Self:
        super().__enter__()
        if self._below is not None:
            self.watching.enter_context(self._below)
        return self

    def enter(self, path: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Open a frame, and name its arguments."""
        parent = self._stack[-1] if self._stack else None
        frame = Frame(path, module, parent, self._clock, newest=self._newest, sharing=self._sharing)
        self._stack.append(frame)
        for tensor in tensors_in(self._inputs if parent is None else args):
            if parent is None:
                frame.new("argument", tensor)
            else:
                frame.find(tensor)
        frame.given = len(frame.nodes)

    def leave(self, module: nn.Module, output: Any) -> None:
        """Close a frame and name its results in the calling code."""
        frame = self._stack.pop()
        parent = frame.parent
        for tensor in tensors_in(output):
            frame.result_shapes.append(tuple(tensor.shape))
            inner = frame.find(tensor)
            if inner is not None:
                frame.returned.append(inner)
            if parent is None:
                continue
            if inner is not None and inner.op == "argument" and inner.outer is not None:
                parent.name(tensor, inner.outer)  # handed through untouched
            elif inner is not None or not self._depends_on_nothing(frame, tensor):
                frame.call(parent, inner, tensor)
        self.frames.append(frame)
        if parent is None:
            self.origins.close()
            self._newest.clear()
            self._sharing.clear()
            for done in self.frames:
                done.close()

    def _depends_on_nothing(self, frame: Frame, tensor: Tensor) -> bool:
        """A module's result without a value in its code is a constant, or as strange as before."""
        if self._below is None:
            return False
        given = any(node.op == "argument" for node in frame.nodes)
        return not given or not self.origins.sources(tensor)

    def saw(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Add the result of one tensor function to the graph of the code that called it."""
        if not self._stack:
            return
        frame, name = self._stack[-1], name_of(func)
        number = -1
        if name in KINDS and self._numbering:
            number = self.totals[frame.path, KINDS[name]]
            self.totals[frame.path, KINDS[name]] += 1
        part = None
        if name == "__setitem__":
            result, part = args[0], part_at(*args[:2])
        whole = part is not None and part is not result and part.numel() == result.numel()
        read = tensors_in(args[2:] if whole else values_read(name, args, kwargs))
        inputs = tuple(node for tensor in read if (node := frame.find(tensor)))
        values = operands_of(args, kwargs) if name in KINDS else ()
        if name in FUSED:
            values = tuple(tensors_in((args, kwargs)))
        operands = tuple(frame.find(v) if isinstance(v, Tensor) else None for v in values)
        self._note_origins(frame, name, (args, kwargs), result, inputs)
        if name == "add" and any(type(value) in (int, float) and value == 0 for value in values):
            name = "positive"  # ``sum([x, y])`` begins at 0
        for tensor in tensors_in(result if inputs else ()):
            same = name in SAME_VALUES and frame.find(tensor) in inputs
            if not same:
                frame.new(
                    name,
                    tensor,
                    inputs=inputs,
                    operands=operands,
                    number=number,
                    weight=int(name not in LINEAR and (name not in PRODUCTS or len(inputs) > 1)),
                    sums=name in ADDITIONS and len(inputs) > 1,
                    order=order_of(func, args, kwargs) if name in PERMUTATIONS else (),
                )
        for tensor in _written(name, args, kwargs, result):
            self._wrote(frame, tensor, tensor if part is None else part)

    def _wrote(self, frame: Frame, whole: Tensor, part: Tensor) -> None:
        """What was written is in all tensors that lie there, also where other code has them."""
        memory = memory_of(whole) if unwrapped(whole) is whole else None
        if memory is None:
            return
        node, others = frame.find(whole), dict(frame.sharing.get(memory, {}))
        if not whole.is_inference() and whole._base is not None:
            others[id(whole._base)] = whole._base
        for other, inside in reached(part, whole, others.values()):
            if node is None:  # constants
                if inside:
                    frame.name(other, None)
                    self.origins.made("", [whole], [other])
            elif is_twin(whole, other):
                frame.name(other, node)
            elif inside and other.numel() < whole.numel():
                frame.new("__getitem__", other, inputs=(node,))
            elif inside:
                plain = whole.is_contiguous() and other.is_contiguous()
                frame.new("view" if plain else "permute", other, inputs=(node,))
            else:
                before = frame.find(other)
                both = (node,) if before is None else (before, node)
                frame.new("__setitem__", other, inputs=both)

    def _note_origins(
        self, frame: Frame, name: str, given: Any, result: Any, inputs: tuple[Node, ...]
    ) -> None:
        """Keep apart what is constant and what only comes from where nobody looked."""
        if name in ADDITIONS:
            operands = [v for v in operands_of(*given) if isinstance(v, Tensor)]
            if len(operands) == 2 and operands[0].shape == operands[1].shape:
                whole = [(frame.find(v), v, unwrapped(v)) for v in operands]
                lost = [own for node, v, own in whole if node is None or own is not v]
                self.origins.added(frame.path, lost)
        if inputs:
            self.origins.read(name)
            return
        results = list(tensors_in(result))
        self.origins.made(name, tensors_in(values_read(name, *given)), results)
        for tensor in results:
            if frame.find(tensor) is not None:  # written over
                frame.name(tensor, None)
            elif tensor._is_view():
                frame.keep(tensor)

    def function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a tensor function, whose operators are its own affair, and look at its result."""
        self._calling = True
        try:
            result = func(*args, **kwargs)
        finally:
            self._calling = False
        self.saw(func, args, kwargs, result)
        return result

    def _saw_below(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Follow values through an operator that no tensor function called."""
        if self._calling:
            return
        self._numbering = False
        try:
            self.saw(func, args, kwargs, result)
        finally:
            self._numbering = True


def _written(name: str, args: Any, kwargs: Mapping[str, Any], result: Any) -> Iterator[Tensor]:
    """What a function writes into: it says so by its name, or gives back what it was given."""
    if "out" in kwargs:
        yield from tensors_in(kwargs["out"])
        return
    first = args[0] if args else kwargs.get("input")
    in_place = (name.endswith("_") and not name.startswith("__")) or name == "__setitem__"
    if in_place or (result is first and name not in SAME_VALUES):  # ``F.relu(x, inplace=True)``
        yield from tensors_in(first)
