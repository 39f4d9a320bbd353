"""One pass of a network, read closely enough to change its weights: operations and uses."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.nested import mapped, tensors_in
from stiffnet.trajectory.batch import Example
from stiffnet.trajectory.graph import Frame, Node, Watch, version_of
from stiffnet.trajectory.wrappers import plain_run


class Refusal(Exception):
    """Something cannot be folded; the message ends a sentence that says why."""


@dataclass(frozen=True, eq=False)
class Op:
    """One tensor function of the pass: what it was given, with values in the place of tensors."""

    node: Node
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: int
    """Which of the function's results the node is."""

    @property
    def name(self) -> str:
        """Of the function."""
        return self.node.op

    @property
    def where(self) -> str:
        """Path of the module whose code called it."""
        return self.node.frame.path

    def given(self, position: int, name: str, default: Any = None) -> Any:
        """One argument, however it was passed."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)


def run_again(op: Op, values: dict[Node, Tensor]) -> Tensor:
    """Run an operation again, on the CPU, on other values, none of which it may change."""

    def put(leaf: Any) -> Any:
        if isinstance(leaf, Node):
            return values[leaf].clone(memory_format=torch.contiguous_format)
        if isinstance(leaf, torch.device):
            return torch.device("cpu")
        return leaf.cpu() if isinstance(leaf, Tensor) else leaf

    try:
        args, kwargs = mapped(op.args, put), mapped(dict(op.kwargs), put)
        return list(tensors_in(op.func(*args, **kwargs)))[op.result]
    except Exception as error:  # a function that goes by more than the shapes it is given
        raise Refusal(f"`{op.name}` in {op.where or 'the network'} cannot be run again") from error


def data_in(op: Op) -> list[Node]:
    """Every value that an operation is given."""
    found: list[Node] = []
    mapped((op.args, dict(op.kwargs)), lambda x: found.append(x) if isinstance(x, Node) else None)
    return found


def unsaved_buffers(model: nn.Module) -> set[int]:
    """Buffers that a state dict leaves out, by their ids."""
    return {
        id(module._buffers[name])
        for module in model.modules()
        for name in module._non_persistent_buffers_set
    }


class Reading(Watch):
    """Keeps the functions of a pass with their arguments, and counts the uses of every weight."""

    def __init__(self, model: nn.Module, inputs: Any) -> None:
        super().__init__(model, inputs)
        self.ops: dict[Node, Op] = {}
        self.names: dict[int, list[str]] = defaultdict(list)
        for listed in (model.named_parameters, model.named_buffers):
            for name, tensor in listed(remove_duplicate=False):
                self.names[id(tensor)].append(name)
        self.unsaved = unsaved_buffers(model)
        self.uses: Counter[int] = Counter()
        self.overwritten: set[Node] = set()
        """Values that other code changed in place, through another name or a part of them."""
        self._users: dict[Node, list[Node | Frame]] | None = None

    def function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See whether what a function is given is still what it was, and run it."""
        if self._stack:
            self._look_at((args, kwargs))
        return super().function(func, args, kwargs)

    def leave(self, module: nn.Module, output: Any) -> None:
        """Close a frame; what it gives must still be what it was, too."""
        self._look_at(output)
        super().leave(module, output)

    def _look_at(self, values: Any) -> None:
        frame = self._stack[-1]
        for tensor in tensors_in(values):
            node = frame.find(tensor)
            if node is not None and node.version != version_of(tensor):
                self.overwritten.add(node)

    def saw(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Add the function and its results to the graph."""
        if not self._stack:
            return
        name = getattr(func, "__name__", "")
        if name == "__set__":  # such as of its `data`, in all code that has it
            node = self._stack[-1].find(args[0])
            while node is not None:
                self.overwritten.add(node)
                node = node.outer
        if name != "__setitem__" and next(tensors_in(result), None) is None:
            return  # a question about a tensor, such as its shape
        self.uses.update(id(tensor) for tensor in tensors_in((args, kwargs)))
        frame = self._stack[-1]

        def node_of(tensor: Any) -> Any:
            return (frame.find(tensor) or tensor) if isinstance(tensor, Tensor) else tensor

        given = mapped(args, node_of), mapped(kwargs, node_of)
        before = len(frame.nodes)
        super().saw(func, args, kwargs, result)
        made = [node for node in frame.nodes[before:] if node.op != "argument"]
        results = args[0] if name == "__setitem__" else result
        own = {frame.find(tensor) for tensor in tensors_in(results)}
        self.overwritten.update(node for node in made if node not in own)
        for index, node in enumerate(made):
            self.ops[node] = Op(node, func, *given, index)

    def users(self, node: Node) -> list[Node | Frame]:
        """What a value goes into in the code that has it: functions, module calls, the result."""
        if self._users is None:
            self._users = defaultdict(list)
            for frame in self.frames:
                for other in frame.nodes:
                    user = other.called or other
                    for source in other.inputs if other.op != "argument" else ():
                        if user not in self._users[source]:
                            self._users[source].append(user)
                for source in frame.returned:
                    self._users[source].append(frame)
        return self._users[node]


def read(model: nn.Module, example: Example) -> Reading:
    """Run a network once, in evaluation, and keep what it did."""
    with plain_run(model), Reading(model, example) as reading:
        example.on(model)
    return reading


def frames_of(reading: Reading, module: nn.Module) -> Iterator[Frame]:
    """Every call of a module in the pass."""
    return (frame for frame in reading.frames if frame.module is module)
