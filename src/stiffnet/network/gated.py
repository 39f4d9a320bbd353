"""A block with a gate in it: the same object, of a class whose code also calls the gate.

The class is made of the block's own and differs from it in `forward`. Nothing else of the block
changes: children, tensors, hooks, attributes and methods are where they were, and giving the class
back undoes it. A gate is a child of the block, and the class knows where its code calls it.
"""

import copy
from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from torch import Tensor, fx, nn

from stiffnet.errors import StepError
from stiffnet.network.tracing import Form, Untraceable, plain_copy, trace

CHILD = "step_size"
"""Name of a gate among the children of its block; the second step's is ``step_size1``, and a second
gate on one step ``step_size_2``."""


@dataclass(frozen=True)
class Gate:
    """One gate in the code of a block."""

    child: str
    """Name of the gate among the block's children."""
    nth: int
    """Which of the block's steps it is on, from 0."""
    number: int = 0
    """Which of the additions of one run of the block's code it is on."""
    at: tuple[int, int] = (-1, -1)
    """Where the addition is in the graphs of the evaluation and of the training code."""
    operand: int = 0
    """Which operand of the addition is the rate."""
    with_state: bool = False
    """It is called with the state too."""


class Plan(Protocol):
    """Where the gates of one block are called; knows how to make the class that does so."""

    @property
    def gates(self) -> tuple[Gate, ...]:
        """Every gate, in the order in which they were attached."""

    @abstractmethod
    def forwards(self, block: nn.Module, original: type[nn.Module]) -> dict[str, Any]:
        """Make the methods that call the gates, which are children of `block` already."""


@dataclass(frozen=True)
class Additions:
    """Gates on the rates of additions in the block's own code."""

    gates: tuple[Gate, ...]
    form: Form
    sources: tuple[str, str]
    """The code that was traced, in evaluation and in training, without any gate."""

    def forwards(self, block: nn.Module, original: type[nn.Module]) -> dict[str, Any]:
        """Trace the code in both modes, and put the calls in.

        Raises:
            StepError: If the code is not what it was when the gates were attached.
        """
        graphs = []
        for training, source in enumerate(self.sources):
            plain = plain_copy(block, original, training=bool(training))
            try:
                graph = trace(plain, self.form)
            except Untraceable as reason:
                raise StepError(_changed(original)) from reason
            if source_of(graph) != source:
                raise StepError(_changed(original))
            insert(graph, [(gate, gate.at[training]) for gate in self.gates])
            graphs.append(fx.GraphModule(plain, graph))
        evaluating, training_too = graphs
        if evaluating.code == training_too.code:
            return {"forward": type(evaluating).forward}
        return {
            "forward": _forward_by_mode,
            "_forward_in_evaluation": type(evaluating).forward,
            "_forward_in_training": type(training_too).forward,
        }


def _changed(original: type[nn.Module]) -> str:
    return (
        f"The code of {original.__name__} is not what it was when a module was attached to it. "
        "Load the weights into a network that you attach to anew."
    )


@dataclass(frozen=True)
class Output:
    """Gates on what the block gives back."""

    gates: tuple[Gate, ...]

    def forwards(self, block: nn.Module, original: type[nn.Module]) -> dict[str, Any]:
        """Gate the result of the block's own code."""
        return {"forward": _gate_result}


@dataclass(frozen=True)
class Input:
    """Gates on the first argument of the block."""

    gates: tuple[Gate, ...]

    def forwards(self, block: nn.Module, original: type[nn.Module]) -> dict[str, Any]:
        """Gate the argument before the block's own code gets it."""
        return {"forward": _gate_argument}


class Gated:
    """What the class of a block with gates has besides the block's own."""

    gated_class: ClassVar[type[nn.Module]]
    """The block's own class."""
    gated_plan: ClassVar[Plan]

    def __deepcopy__(self, memo: dict[int, Any]) -> "Gated":
        made: Any = object.__new__(type(self))
        memo[id(self)] = made
        made.__setstate__(copy.deepcopy(self.__dict__, memo))
        return made  # type: ignore[no-any-return]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _unpickled, (self.gated_class, self.gated_plan), self.__dict__

    def __setattr__(self, name: str, value: Any) -> None:
        kept = self.__dict__.get(name, value)
        if not (name == "training" or name.startswith("_") or _same(kept, value)):
            raise StepError(
                f"The code of this {type(self).__name__} was read with {name}={kept!r} when "
                "something was attached. Detach first, then set it, then attach again."
            )
        super().__setattr__(name, value)


def _same(kept: Any, value: Any) -> bool:
    """Whether setting `value` leaves the code as it was read: tensors are read at every call."""
    if kept is value or isinstance(kept, Tensor):
        return True
    return isinstance(kept, bool | int | float | str | tuple | list) and bool(kept == value)


class _Pickled(Gated):
    """An attached block on its way out of a pickle: it gets its code with its state."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[misc]
        block: Any = self
        plan = self.gated_plan
        block.__class__ = self.gated_class
        put(block, plan)


def _unpickled(original: type[nn.Module], plan: Plan) -> nn.Module:
    bare = original.__new__(original)
    bare.__class__ = _subclass(_Pickled, original, plan, {})
    return bare


def _subclass(
    base: type[Gated], original: type[nn.Module], plan: Plan, methods: dict[str, Any]
) -> type[Any]:
    names = {"__module__": original.__module__, "__qualname__": original.__qualname__}
    body = {
        **names,
        "__doc__": original.__doc__,
        "gated_class": original,
        "gated_plan": plan,
        **methods,
    }
    return type(original.__name__, (base, original), body)


def put(block: nn.Module, plan: Plan) -> None:
    """Give a block, whose gates are its children already, the class that calls them."""
    original = original_class(block)
    made = _subclass(Gated, original, plan, plan.forwards(block, original))
    block.__class__ = made


def take_out(block: nn.Module, children: Collection[str] | None = None) -> None:
    """Let gates of a block go, all or some; without any it has its own class back.

    Gates that stay are called what they would be if the others had never been there.
    """
    assert isinstance(block, Gated)
    plan, original = block.gated_plan, block.gated_class
    gone = {gate.child for gate in plan.gates} if children is None else set(children)
    stay: list[Gate] = []
    modules: dict[str, Any] = {}
    for gate in plan.gates:
        module = block._modules.pop(gate.child)
        if gate.child not in gone:
            before = sum(other.nth == gate.nth for other in stay)
            stay.append(replace(gate, child=gate_name(gate.nth, before)))
            modules[stay[-1].child] = module
    block.__class__ = original  # type: ignore[assignment]
    for name, module in modules.items():
        block.add_module(name, module)
    if stay:
        put(block, replace(plan, gates=tuple(stay)))  # type: ignore[type-var]


def gate_name(nth: int, there: int) -> str:
    """Name a gate on the nth step of a block that has some on it already.

    >>> gate_name(0, 0), gate_name(1, 0), gate_name(0, 1)
    ('step_size', 'step_size1', 'step_size_2')
    """
    return CHILD + (str(nth) if nth else "") + (f"_{there + 1}" if there else "")


def original_class(block: nn.Module) -> type[nn.Module]:
    """Return the class that a block has without gates."""
    return block.gated_class if isinstance(block, Gated) else type(block)


def source_of(graph: fx.Graph) -> str:
    """Return the code of a graph."""
    return graph.python_code("self").src


def insert(graph: fx.Graph, gates: list[tuple[Gate, int]]) -> None:
    """Call gates on the rates of additions, given by their places in the graph."""
    nodes = list(graph.nodes)
    for gate, place in gates:
        _insert(graph, nodes[place], gate)
    graph.lint()


def _insert(graph: fx.Graph, addition: fx.Node, gate: Gate) -> None:
    operands = operand_nodes(addition)
    rate, state = operands[gate.operand], operands[1 - gate.operand]
    with graph.inserting_before(addition):
        gated = graph.call_module(gate.child, (rate, state) if gate.with_state else (rate,))
    later = list(graph.nodes)
    later = later[later.index(addition) + 1 :]
    _set_operand(addition, gate.operand, gated)
    if gate.operand == 0 and _in_place(addition):  # the sum was written into the rate
        for user in list(rate.users):
            if user in later:
                user.replace_input_with(rate, addition)


def operand_nodes(addition: fx.Node) -> tuple[Any, Any]:
    """Both operands of an addition, however they are passed."""
    named = [addition.kwargs[name] for name in ("input", "other") if name in addition.kwargs]
    left, right = (*addition.args, *named)[:2]
    return left, right


def _set_operand(addition: fx.Node, operand: int, value: fx.Node) -> None:
    if operand < len(addition.args):
        addition.update_arg(operand, value)
    else:
        addition.update_kwarg(("input", "other")[operand], value)


def _in_place(addition: fx.Node) -> bool:
    name = addition.target if addition.op == "call_method" else addition.target.__name__  # type: ignore[union-attr]
    return name in ("add_", "sub_", "iadd", "isub", "__iadd__", "__isub__")


def _forward_by_mode(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Run the code that was traced in the mode in which the block is."""
    if self.training:
        return self._forward_in_training(*args, **kwargs)
    return self._forward_in_evaluation(*args, **kwargs)


def _gate_result(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Run the block's own code, then every gate on what it gave."""
    result = self.gated_class.forward(self, *args, **kwargs)
    for gate in self.gated_plan.gates:
        result = getattr(self, gate.child)(result)
    return result


def _gate_argument(self: Any, rate: Any, *args: Any, **kwargs: Any) -> Any:
    """Run every gate on the first argument, then the block's own code."""
    for gate in self.gated_plan.gates:
        rate = getattr(self, gate.child)(rate)
    return self.gated_class.forward(self, rate, *args, **kwargs)
