"""The own few lines of one block as a graph, with every module that it calls as a leaf.

Symbolic tracing follows one path through the code. Two things keep that honest: the path is taken
for a call that was really made (see `Call`), and whoever uses a graph runs it on that call's
arguments and compares.
"""

import enum
import inspect
import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode

from stiffnet.errors import StepError
from stiffnet.trajectory.graph import KINDS, operands_of, tensors_in

Form = tuple[tuple[str, Any], ...]
"""What is fixed about the arguments of a call, by name; empty where nothing is."""

_SIMPLE = (type(None), bool, int, float, str)


class Part(enum.Enum):
    """Stands in a `Form` for what may differ from call to call."""

    ANY = "any"


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a block: its arguments as they came in, and its result."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any


class Untraceable(Exception):
    """The code of a block cannot be read as a graph; the message ends a sentence that says why."""


def plain_copy(block: nn.Module, original: type[nn.Module], *, training: bool) -> nn.Module:
    """Return the block as an object of its original class, around the same children and tensors.

    What tracing or running it writes to the object itself does not reach the block.
    """
    bare = original.__new__(original)
    bare.__dict__.update(block.__dict__)
    for own in ("_modules", "_parameters", "_buffers"):
        bare.__dict__[own] = dict(block.__dict__[own])
    bare.__dict__["training"] = training
    return bare


def trace(block: nn.Module, form: Form) -> fx.Graph:
    """Trace the code of a block.

    Args:
        block: A `plain_copy`, in the mode that is to be traced.
        form: What to take as fixed; a call that differs in it will be refused when it is made.

    Raises:
        Untraceable: If the code cannot be read that way.
    """
    before = dict(block.__dict__)
    tracer = _OwnLines(dict(form))
    try:
        graph = tracer.trace(block)
    except (fx.proxy.TraceError, ValueError) as error:
        if "control flow" in str(error):
            reason = "what its code does depends on the values or shapes that it is given"
            raise Untraceable(reason) from error
        raise Untraceable(f"its code cannot be traced ({_first_line(error)})") from error
    except Exception as error:  # whatever foreign code does with a stand-in for a tensor
        raise Untraceable(f"its code cannot be traced ({_first_line(error)})") from error
    if any(name not in before or block.__dict__[name] is not before[name] for name in _own(block)):
        raise Untraceable("its code makes or keeps tensors of its own")
    graph._co_fields = {}  # else it claims to be the block's file
    return graph


def _own(block: nn.Module) -> Iterator[str]:
    return (name for name in block.__dict__ if name != "training")


def _first_line(error: Exception) -> str:
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return line.rstrip(".")[:120]


class _OwnLines(fx.Tracer):
    """Goes into no module, and fixes the arguments that a `Form` fixes."""

    proxy_buffer_attributes = True

    def __init__(self, form: Mapping[str, Any]) -> None:
        super().__init__()
        self._form = form

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True

    def create_args_for_root(
        self, root_fn: Any, is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        """Make a placeholder of every argument, then put the fixed ones in their places."""
        function, args = super().create_args_for_root(root_fn, is_module, concrete_args)
        return function, [args[0], *(self._fixed(proxy) for proxy in args[1:])]

    def _fixed(self, proxy: fx.Proxy) -> Any:
        name = str(proxy.node.target).lstrip("*")
        if name not in self._form:
            return proxy
        return self._take(proxy, self._form[name], name)

    def _take(self, proxy: Any, form: Any, name: str) -> Any:
        if form is Part.ANY:
            return proxy
        if isinstance(form, _SIMPLE):
            self.create_proxy("call_function", only, (proxy, form, name), {})
            return form
        self.create_proxy("call_function", only_parts, (proxy, _parts(form), name), {})
        if isinstance(form, tuple | list):
            taken = [self._take(proxy[i], part, name) for i, part in enumerate(form)]
            return type(form)(taken)
        return {key: self._take(proxy[key], part, name) for key, part in form.items()}


def only(value: Any, fixed: Any, name: str) -> None:
    """Refuse a call whose argument is not the one that the code was traced with."""
    if type(value) is not type(fixed) or value != fixed:
        raise StepError(
            f"A block with an attached module was traced with {name}={fixed!r}, and is now called "
            "with something else; detach, and attach again on an `example` that does so too."
        )


def only_parts(value: Any, parts: Any, name: str) -> None:
    """Refuse a call whose nested argument has other parts than the code was traced with."""
    given = tuple(value) if isinstance(value, dict) else len(value)
    if given != parts:
        raise StepError(
            f"A block with an attached module was traced with {parts!r} as parts of {name!r}, and "
            "is now called with others; detach, and attach again on an `example` that does so too."
        )


def _parts(form: Any) -> Any:
    return tuple(form) if isinstance(form, dict) else len(form)


def form_of(forward: Any, call: Call) -> Form:
    """Fix whatever is no tensor in the arguments of a call."""
    bound = inspect.signature(inspect.unwrap(forward)).bind(None, *call.args, **call.kwargs)
    bound.apply_defaults()
    return tuple((name, _form(value)) for name, value in list(bound.arguments.items())[1:])


def _form(value: Any) -> Any:
    if isinstance(value, _SIMPLE):
        return value
    if type(value) in (tuple, list):
        return type(value)(_form(item) for item in value)
    if type(value) is dict:
        return {key: _form(item) for key, item in value.items()}
    return Part.ANY


_ADDING = (operator.add, operator.iadd, operator.sub, operator.isub, torch.add, torch.sub)
_ADDING_METHODS = ("add", "add_", "sub", "sub_", "__add__", "__iadd__", "__sub__", "__isub__")


@dataclass(frozen=True, eq=False)
class Addition:
    """One addition that a graph did, in the order in which they happened."""

    node: fx.Node
    shapes: tuple[tuple[int, ...], ...]  # of its operands
    dtype: torch.dtype | None

    @property
    def plain(self) -> bool:
        """The node is that addition, and nothing else."""
        if self.node.op == "call_function":
            return self.node.target in _ADDING
        return self.node.op == "call_method" and self.node.target in _ADDING_METHODS


def additions(block: nn.Module, graph: fx.Graph, call: Call) -> list[Addition]:
    """Run a graph on a call's arguments, and list the additions of its own code.

    They are numbered as `Site.number` numbers them.
    """
    runner = _Runner(block, graph)
    with torch.no_grad():
        runner.run(*as_positional(graph, call))
    return runner.seen


def as_positional(graph: fx.Graph, call: Call) -> tuple[Any, ...]:
    """Arrange a call's arguments as an interpreter takes them: one for each placeholder."""
    args, kwargs = list(copied(call.args)), dict(copied(call.kwargs))
    values: list[Any] = []
    for node in graph.nodes:
        if node.op != "placeholder":
            continue
        name = str(node.target)
        if name.startswith("**"):
            values.append(kwargs)
        elif name.startswith("*"):
            values.extend(args)
            args = []
        elif args:
            values.append(args.pop(0))
        elif name in kwargs:
            values.append(kwargs.pop(name))
        else:
            values.append(node.args[0])
    return tuple(values)


def copied(value: Any) -> Any:
    """Copy every tensor in nested containers, so that no code can change the original."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(copied(item) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(copied(item) for item in value)
    if isinstance(value, Mapping) and type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    return value


class _Runner(fx.Interpreter):
    """Runs a graph, and sees which node adds."""

    def __init__(self, block: nn.Module, graph: fx.Graph) -> None:
        super().__init__(block, garbage_collect_values=True, graph=graph)
        self.seen: list[Addition] = []
        self._node: fx.Node | None = None

    def run_node(self, n: fx.Node) -> Any:
        self._node = n
        return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        with _Adding(self):
            return super().call_function(target, args, kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        with _Adding(self):
            return super().call_method(target, args, kwargs)

    def saw(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Note an addition."""
        assert self._node is not None
        values = [v for v in operands_of(args, kwargs) if isinstance(v, Tensor)]
        shapes = tuple(tuple(value.shape) for value in values)
        self.seen.append(Addition(self._node, shapes, values[0].dtype if values else None))


class _Adding(TorchFunctionMode):
    """Shows every addition to a runner."""

    def __init__(self, runner: _Runner) -> None:
        super().__init__()
        self._runner = runner

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if KINDS.get(getattr(func, "__name__", "")) == "add":
            self._runner.saw(args, kwargs or {})
        return func(*args, **(kwargs or {}))


@contextmanager
def borrowed(block: nn.Module, *, training: bool) -> Iterator[None]:
    """Put a block in a mode; then give back modes, buffers and random numbers as they were."""
    modes = [(module, module.training) for module in block.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in block.buffers()]
    devices = {p.device for p in block.parameters() if p.device.type == "cuda"}
    with torch.random.fork_rng(devices=list(devices)), torch.no_grad():
        torch.manual_seed(0)
        block.train(training)
        try:
            yield
        finally:
            for module, mode in modes:
                module.training = mode
            for buffer, before in buffers:
                if not buffer.is_meta:
                    buffer.copy_(before)


def agree(one: Any, other: Any) -> bool:
    """Whether two results have the same tensors, up to the rounding of a device."""
    pairs = list(zip(tensors_in(one), tensors_in(other), strict=False))
    if len(pairs) != sum(1 for _ in tensors_in(one)) or len(pairs) != len(list(tensors_in(other))):
        return False
    return all(_close(a, b) for a, b in pairs)


def _close(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.is_meta or b.is_meta:
        return True
    if not a.is_floating_point():
        return torch.equal(a, b)
    scale = float(a.abs().nan_to_num().max()) if a.numel() else 0.0
    return torch.allclose(a, b, rtol=0, atol=1e-5 * scale, equal_nan=True)
