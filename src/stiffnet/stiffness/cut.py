"""A function of one tensor, cut in two where the fewest numbers pass.

Write f = h ∘ g with z = g(x) the values at a cut that every way from x to f(x) crosses. Then
∂f/∂x = A B with A = ∂h/∂z and B = ∂g/∂x, and the eigenvalues of A B other than zero are those of
B A, which is as large as the cut. Behind an activation with a flat part only the coordinates that
are not on it count: elsewhere the rows of B are zero.

The cut is a smallest one of the graph of tensor operations that computes f: a maximum flow finds
it, with the number of counting coordinates as the capacity of a value.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from stiffnet.errors import NonFiniteError, StepError
from stiffnet.stiffness.jacobian import prepare_forward_mode
from stiffnet.words import first_line

Function = Callable[..., Any]

# Activations of one argument that are applied to every number by itself.
_POINTWISE = {
    "relu", "hardtanh", "clamp", "clamp_min", "clamp_max", "hardswish", "hardsigmoid",
    "leaky_relu", "elu", "gelu", "silu", "mish", "sigmoid", "tanh", "softplus", "threshold",
}  # fmt: skip
_COPIES = {"clone", "alias", "contiguous", "lift_fresh_copy", "view", "_unsafe_view"}
# What is detached still depends on x. A copy into a tensor is what is copied, in its shape; torch
# has no forward derivative of it.
_DECOMPOSED: dict[OpOverload, Function] = {
    torch.ops.aten.detach.default: torch.ops.aten.alias.default,
    torch.ops.aten.copy.default: lambda into, value, _=False: value.to(into.dtype).expand_as(into),
}
# What memory holds before it is written to is no value, and may look like a NaN.
_FILLED = {torch.ops.aten.new_empty.default: torch.ops.aten.new_zeros.default}
SAME = 1e-9  # of the largest value: what two ways to compute it in float64 may differ by
ROUNDING = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}  # and with such casts
_UNBOUNDED = 2**31 - 1  # as a capacity: maximum_flow counts in int32


@dataclass(frozen=True, eq=False)
class Cut:
    """The two halves of a function, and which coordinates of the values between them count."""

    inner: Function
    """x ↦ the counting coordinates of the values at the cut, as one vector."""
    outer: Function
    """Those coordinates, as one vector ↦ f(x), flat; the other ones stay what they are at x."""
    at: Tensor
    """What `inner` gives at x."""
    where: str
    """The operations that made the values, in words."""
    size: int
    """How many coordinates count."""
    whole: int
    """How many the values have in all."""


class Traced:
    """The operations that compute f(x) from x, with everything that does not depend on x known.

    What is detached from gradients still depends on x: derivatives are those of the values.

    Args:
        function: f, of one tensor; what it draws, its modes and what it writes are not its own
            business here: it must give the same values each time.
        x: Where it is looked at.

    Raises:
        StepError: If the operations cannot be followed.
        NonFiniteError: If a value on the way is NaN or infinite.
    """

    def __init__(self, function: Callable[[Tensor], Tensor], x: Tensor) -> None:
        prepare_forward_mode()
        self.x = x.detach()
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            try:
                graph = _graph(function, self.x)
                casts = _casts(graph)
                self._compare(
                    function, graph, max([SAME, *(ROUNDING[kind] for kind in casts.values())])
                )
                for node in casts:  # from here on they keep the full precision
                    node.kwargs = {**node.kwargs, "dtype": torch.float64}
                graph.graph.eliminate_dead_code()
                graph.recompile()
                interpreter = fx.Interpreter(graph, garbage_collect_values=False)
                interpreter.run(self.x)
            except StepError:
                raise
            except Exception as error:
                raise StepError(
                    f"The operations of the step cannot be followed: {first_line(error)}. Choose "
                    "another step."
                ) from error
        values = interpreter.env.items()
        self._values = {n: v.detach() if isinstance(v, Tensor) else v for n, v in values}
        nodes = list(graph.graph.nodes)
        self._input = next(node for node in nodes if node.op == "placeholder")
        [self._output] = next(node for node in nodes if node.op == "output").all_input_nodes
        self._nodes = self._between(nodes)
        self._known = {n: v for n, v in self._values.items() if n not in set(self._nodes)}
        self._compare(graph, self, SAME)
        self._check()

    def __call__(self, x: Tensor) -> Tensor:
        """Return f(x), flat, by the same operations."""
        return self._follow({self._input: x}, [self._output])[0].flatten()

    @property
    def value(self) -> Tensor:
        """What the function gives at the x that was given."""
        given: Tensor = self._values[self._output]
        return given

    def cut(self) -> Cut:
        """Return the smallest cut; an empty one where f does not depend on x."""
        if self._output not in self._nodes:
            return self._cut_at([])
        return self._cut_at(self._smallest())

    def without_shortcut(self) -> tuple[Tensor | None, "Traced"]:
        """Take a shortcut that hands x on away from the end: f(x) = D (x + r(x)).

        Returns:
            Which coordinates an activation with slopes of zero and one lets through behind the
            sum (all, where there is none), and r; None and f itself where f has no such end.
        """
        kept, end = torch.ones(self.value.numel(), dtype=torch.bool), self._output
        while self._is_activation(end):
            slope = self._slope(end)
            if not bool(((slope == 0) | (slope == 1)).all()):
                return None, self
            kept, end = kept & (slope == 1).flatten(), end.args[0]
        if _name(end).rstrip("_") != "add" or end.kwargs.get("alpha", 1) != 1:
            return None, self
        rest = [node for node in end.args if not self._hands_on(node)]
        if len(rest) != 1 or not isinstance(rest[0], fx.Node):
            return None, self
        if self._values[rest[0]].shape != self.value.shape:  # it is spread over the state
            return None, self
        return kept, self._ending(rest[0])

    def _hands_on(self, node: Any) -> bool:
        """Whether a value is x itself, as copies of it are."""
        while isinstance(node, fx.Node) and _name(node) in _COPIES:
            if self._values[node].shape != self.x.shape:
                return False
            node = node.args[0]
        return node is self._input

    def _ending(self, node: fx.Node) -> "Traced":
        """The same function up to one of its values."""
        part = copy(self)
        part._output = node
        part._nodes = part._between(self._nodes)
        return part

    def _between(self, nodes: Sequence[fx.Node]) -> list[fx.Node]:
        """Nodes that depend on x and on which f depends, in the order in which they run."""
        after = {self._input}
        for node in nodes:
            if after.intersection(node.all_input_nodes):
                after.add(node)
        before = {self._output}
        for node in reversed(nodes):
            if before.intersection(node.users):
                before.add(node)
        return [node for node in nodes if node in after and node in before]

    def _check(self) -> None:
        for node in self._nodes:
            value = self._values[node]
            numbers = isinstance(value, Tensor) and value.is_floating_point()
            if numbers and value.dtype is not torch.float64:
                raise StepError(
                    f"The step computes in {value.dtype} inside ({_name(node)}), in which small "
                    "eigenvalues are rounding. Let its code keep the precision of its input."
                )
            scores = node.users and all("softmax" in _name(user) for user in node.users)
            if numbers and scores:  # of which a mask makes some -inf, and the softmax zero
                value = value.masked_fill(value.isneginf(), 0.0)
            if numbers and not bool(value.isfinite().all()):
                raise NonFiniteError(
                    f"A value of the step is NaN or infinite (made by {_name(node)}). Check the "
                    "weights and this input."
                )

    def _compare(self, function: Function, other: Function, tolerance: float) -> None:
        """See that two functions give the same, at x and nearby."""
        draws = torch.Generator().manual_seed(0)
        away = torch.randn(self.x.shape, dtype=self.x.dtype, generator=draws)
        size = float(self.x.abs().max()) if self.x.numel() else 0.0
        for x in (self.x, self.x + 1e-3 * (size or 1.0) * away):
            with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
                wanted, found = (
                    f(x.clone()).detach().double().flatten() for f in (function, other)
                )
            scale = float(wanted.abs().max()) if wanted.numel() else 0.0
            if not math.isfinite(scale):
                continue  # named below, with the operation
            if not bool(((wanted - found).abs() <= tolerance * scale).all()):
                raise StepError(
                    "The operations of the step cannot be followed: run again, they give other "
                    "values. It draws random numbers, or hands values to code outside of torch. "
                    "Choose another step."
                )

    def _follow(self, given: Mapping[fx.Node, Tensor], wanted: Sequence[fx.Node]) -> list[Tensor]:
        """Run the operations that lead from given values to wanted ones."""
        values: dict[fx.Node, Any] = {**self._known, **given}
        needed, waiting = set(), [node for node in wanted if node not in values]
        while waiting:
            node = waiting.pop()
            if node not in needed:
                needed.add(node)
                waiting += [other for other in node.all_input_nodes if other not in values]
        for node in self._nodes:
            if node in needed:
                args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        return [values[node] for node in wanted]

    def _counting(self, node: fx.Node) -> Tensor | None:
        """Which coordinates of a value can change at all; None where it is no tensor of floats."""
        value = self._values[node]
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return None
        if not self._is_activation(node):
            return torch.ones_like(value, dtype=torch.bool).flatten()
        return (self._slope(node) != 0).flatten()

    def _is_activation(self, node: fx.Node) -> bool:
        """Whether a value is an activation of one that depends on x, and of nothing else."""
        known = _name(node).rstrip("_") in _POINTWISE
        return known and node.all_input_nodes == [node.args[0]] and node.args[0] in self._nodes

    def _slope(self, node: fx.Node) -> Tensor:
        """The derivative of an activation at each of its inputs."""
        inputs = self._values[node.args[0]]  # type: ignore[index]

        def act(x: Tensor) -> Tensor:
            made: Tensor = node.target(x, *node.args[1:], **node.kwargs)  # type: ignore[operator]
            return made

        slope: Tensor = torch.func.jvp(act, (inputs,), (torch.ones_like(inputs),))[1]
        return slope

    def _smallest(self) -> list[tuple[fx.Node, Tensor]]:
        """The values of a smallest cut, with their counting coordinates."""
        place = {node: i for i, node in enumerate(self._nodes)}
        counting = {node: self._counting(node) for node in self._nodes}
        source, sink = 2 * len(place), 2 * len(place) + 1
        edges = [
            (source, 2 * place[self._input], _UNBOUNDED),
            (2 * place[self._output] + 1, sink, _UNBOUNDED),
        ]
        for node, i in place.items():
            mask = counting[node]
            # zero capacity would drop the edge; a cut of zeros is the best there is all the same
            through = _UNBOUNDED if mask is None else int(mask.sum())
            edges.append((2 * i, 2 * i + 1, through))
            users = (place[user] for user in node.users if user in place)
            edges += [(2 * i + 1, 2 * user, _UNBOUNDED) for user in users]
        rows, columns, capacities = np.array(edges, dtype=np.int32).T
        capacity = csr_array((capacities, (rows, columns)), shape=(sink + 1, sink + 1))
        flow = maximum_flow(capacity, source, sink).flow
        left: Any = capacity - flow
        left.data[left.data < 0] = 0
        left.eliminate_zeros()
        reached = set(breadth_first_order(left, source, return_predecessors=False).tolist())
        return [
            (node, mask)
            for node, i in place.items()
            if 2 * i in reached
            and 2 * i + 1 not in reached
            and (mask := counting[node]) is not None
        ]

    def _cut_at(self, chosen: Sequence[tuple[fx.Node, Tensor]]) -> Cut:
        nodes = [node for node, _ in chosen]
        flat = [self._values[node].flatten() for node in nodes]
        masks = [mask for _, mask in chosen]
        places = [mask.nonzero()[:, 0] for mask in masks]
        sizes = [len(place) for place in places]

        def inner(x: Tensor) -> Tensor:
            found = self._follow({self._input: x}, nodes)
            parts = [v.flatten()[p] for v, p in zip(found, places, strict=True)]
            return torch.cat([x.flatten()[:0], *parts])

        def outer(z: Tensor) -> Tensor:
            given = {}
            for node, value, place, part in zip(nodes, flat, places, z.split(sizes), strict=True):
                whole = value.index_put((place,), part) if len(place) < len(value) else part
                given[node] = whole.view(self._values[node].shape)
            return self._follow(given, [self._output])[0].flatten()

        at = inner(self.x)
        names = " and ".join(_name(node) for node in nodes) or "nothing"
        return Cut(inner, outer, at, names, sum(sizes), sum(map(len, flat)))


def _graph(function: Callable[[Tensor], Tensor], x: Tensor) -> fx.GraphModule:
    """The operations of a function, none of which writes into a value of another."""

    def traced(other: Callable[[Tensor], Tensor]) -> fx.GraphModule:
        pure = torch.func.functionalize(other, remove="mutations")
        graph: fx.GraphModule = make_fx(pure, _DECOMPOSED, tracing_mode="real")(x)
        return graph

    graph = traced(function)
    targets = (node.target for node in graph.graph.nodes)  # torch's own come later, as in padding
    if any(isinstance(each, OpOverload) and each._schema.is_mutable for each in targets):
        for node in graph.graph.nodes:
            node.target = _FILLED.get(node.target, node.target)
        graph.recompile()
        graph = traced(graph)
    return graph


def _casts(graph: fx.GraphModule) -> dict[fx.Node, torch.dtype]:
    """Operations that give a lower precision than they could, and which."""
    kinds = {node: node.kwargs.get("dtype") for node in graph.graph.nodes}
    return {node: kind for node, kind in kinds.items() if kind in ROUNDING}


def _name(node: fx.Node) -> str:
    """Say which operation made a value."""
    if node.op == "placeholder":
        return "the input"
    if node.op != "call_function":
        return "a constant"
    if node.target.__name__ == "getitem":  # type: ignore[union-attr]
        return _name(node.args[0])  # type: ignore[arg-type]
    return str(node.target).removeprefix("aten.").split(".")[0]
