"""What is a residual step, and what is none.

A step is an addition, in the code of one module, of a *state* and a *rate* that was computed from
that state, whose sum is what the module's code goes on with. Three questions decide:

1. Where does the state come from? Either it is handed through unchanged and the rate was computed
   from it (an identity shortcut), or both operands leave one value on separate ways, of which the
   state's is the plainer (a projection), or it came in as an argument of its own.
2. Is the sum the module's way on? Every path from the state to the module's result must lead
   through it, or every path to a later step that begins at the sum: in code that holds several
   blocks (a traced network) a state may also be handed to a decoder. This leaves out rotary
   embeddings, attention biases, multi-scale sums and the cells of NASNet.
3. Is it more than one linear map? A sum of parallel linear branches, as RepVGG, MobileOne and
   RepViT train them, is a single convolution in disguise and no step.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch

from stiffnet.errors import StepError
from stiffnet.trajectory.functions import ADDITIONS, FUSED
from stiffnet.trajectory.graph import Frame, Node
from stiffnet.trajectory.step import Site
from stiffnet.trajectory.ways import (
    before_gates,
    between,
    gates,
    last_common,
    next_sum,
    precedes,
    reaches,
    same_values,
    stream_of,
    weight_between,
)


@dataclass(frozen=True)
class Found:
    """One step as one probe saw it, with the shapes of that probe's batch."""

    state_at: Site  # without what takes two probes to know, and the count of all that are there
    state_shape: tuple[int, ...]
    rate_at: Site
    rate_shape: tuple[int, ...]
    identity: bool
    branch: tuple[str, ...]
    gates: tuple[str, ...] = ()
    total: Node | None = None  # the sum; None of a block


def residual_additions(frames: Iterable[Frame]) -> Iterator[tuple[int, Found]]:
    """Every addition that is a step, with its time; a StepError if it cannot be watched again."""
    for frame in frames:
        found = verdicts(frame)
        _refuse_fused(frame, found)
        for total, verdict in found:
            if total.number >= 0:
                yield total.time, _describe(total, verdict)
            elif not isinstance(frame.module, torch.jit.ScriptModule):  # see `steps`
                raise StepError(
                    f"In {_place(frame)} a state and its rate are "
                    "added inside a function that cannot be watched (TorchScript, say), so that "
                    "this step cannot be measured. Make that function plain Python."
                )


def _refuse_fused(frame: Frame, found: "_Steps") -> None:
    """Refuse steps that are added by a function which computes the rate too."""
    for node in frame.nodes:
        state, *others = node.operands if node.op in FUSED and node.operands else (None,)
        for rate in others:
            root = _root(state, rate) if state and rate else None
            if root is not None and _is_the_way_on(node, _Verdict(0, True, (root,)), found):
                raise StepError(
                    f"In {_place(frame)} a state and its rate are added by `{node.op}`, in which "
                    "the rate is never seen by itself. Write it as a sum, `x + f`."
                )


def passed_over(frames: Iterable[Frame]) -> list[str]:
    """Places of sums that may be steps: in code that holds several blocks, nobody can say.

    Each adds a rate to the state that it was computed from, which was made in the same code and
    goes on beside the sum. In a block of its own it would be a step; in one piece of code with
    the blocks around it, it may as well be a layer of several ways.
    """
    places = []
    for frame in frames:
        found = verdicts(frame)
        for node in frame.nodes if found or frame.parent is None else ():  # not NASNet's cells
            if node.op in ADDITIONS and node.floating and all(node is not t for t, _ in found):
                summands = _summands(node)
                verdict = _identity(node, *summands) if summands else None
                if verdict is None or verdict.origin[0].op == "argument":
                    continue
                negated = verdict.state_operand == 1 and node.op.startswith("sub")
                if not negated and not _in_a_branch(node, found):
                    places.append(_place(frame))
    return places


def _place(frame: Frame) -> str:
    return repr(frame.path) if frame.path else f"the code of {type(frame.module).__name__}"


@dataclass(frozen=True)
class _Verdict:
    state_operand: int
    identity: bool
    origin: tuple[Node, ...]  # where the branch begins
    linear: bool = True  # the shortcut is an identity or a linear map
    given: tuple[Node, ...] = ()  # where it begins outside, if state and rate came as arguments

    @property
    def input(self) -> Node | None:
        """The one value that state and rate were made of; None if there is no such one."""
        found = set(self.given or self.origin)
        return found.pop() if len(found) == 1 else None


_Steps = list[tuple[Node, _Verdict]]


def verdicts(frame: Frame) -> _Steps:
    """The additions of one frame that are steps, the last one first."""
    known: _Steps = []
    while True:  # a projection may be known by another step in the same code
        found: _Steps = []
        for node in reversed(frame.nodes):
            if node.op in ADDITIONS and node.floating:
                verdict = _judge(node, found, known)
                if verdict is not None:
                    found.append((node, verdict))
        if len(found) == len(known):
            return found
        known = found


def _judge(total: Node, later: _Steps, known: _Steps) -> _Verdict | None:
    """Decide whether an addition is a step, and which operand is its state."""
    summands = _summands(total)
    if summands is None or summands[0] is summands[1]:
        return None
    left, right = summands
    left, right = _without_reading(left, right), _without_reading(right, left)
    for rule in (_identity, _argument, _projection):
        verdict = rule(total, left, right)
        if verdict is None:
            continue
        if verdict.state_operand == 1 and total.op.startswith("sub"):
            return None
        if rule is _projection and not _projects_a_state(total, verdict, later, known):
            return None
        return verdict if _is_the_way_on(total, verdict, later) else None
    return None


def _summands(total: Node) -> tuple[Node, Node] | None:
    """Both operands of an addition, if they depend on the input and have the shape of the sum."""
    left, right = total.operands if len(total.operands) == 2 else (None, None)
    if left is None or right is None or not left.shape == right.shape == total.shape:
        return None
    return left, right


def _without_reading(rate: Node, state: Node) -> Node:
    """The rate; before its gates, where nothing but them reads the state, as StepNet does.

    Such a gate must not make a branch that left the network elsewhere one that left at the state.
    """
    plain = before_gates(rate)
    reads = precedes(state, rate) and plain is not state and not precedes(state, plain)
    return plain if reads else rate


def _identity(total: Node, left: Node, right: Node) -> _Verdict | None:
    """The rate was computed from the state, which is handed through."""
    for operand, (state, rate) in enumerate(((left, right), (right, left))):
        root = _root(state, rate)
        if root is not None and _is_branch(root, rate):
            return _Verdict(operand, True, (root,))
    return None


def _root(state: Node, rate: Node) -> Node | None:
    """The nearest value in the state's stream that the rate was computed from."""
    return next((node for node in stream_of(state) if precedes(node, rate)), None)


def _argument(total: Node, left: Node, right: Node) -> _Verdict | None:
    """The state is an argument of the module, the rate was computed from another one."""
    found = []
    for operand, (state, rate) in enumerate(((left, right), (right, left))):
        root = stream_of(state)[-1]
        if root.outer is None:
            continue
        sources = [n for n in root.frame.nodes if n.outer and n is not root and reaches(n, rate)]
        given = same_values(rate)
        each = (_relation(root.outer, n.outer, given=n is given) for n in sources if n.outer)
        relations = [relation for relation in each if relation is not None]
        if relations:
            identity = any(handed for handed, _ in relations)
            begins = tuple(node for handed, node in relations if handed is identity)
            found.append(_Verdict(operand, identity, (root, *sources), given=begins))
    return next((verdict for verdict in found if verdict.identity), found[0] if found else None)


def _relation(state: Node, source: Node, *, given: bool) -> tuple[bool, Node] | None:
    """How an argument called the state relates to the argument that the rate came from.

    Whether the state is handed through, or else projected, and the value that both came from. State
    and source are values of the code that calls the module. Where the source was `given` as the
    rate itself, as to a module that only adds, the state must be the plainer of both.
    """
    while state.frame is source.frame:
        for root in stream_of(state):
            if root is source or (precedes(root, source) and _is_branch(root, source)):
                return True, root
        fork = last_common(state, source)
        if fork is not None:
            plainer = fork is not source and (
                weight_between(fork, state) < weight_between(fork, source)
            )
            return (False, fork) if plainer or not given else None
        if state.outer is None or source.outer is None:
            return None
        state, source = state.outer, source.outer
    return None


def _projection(total: Node, left: Node, right: Node) -> _Verdict | None:
    """Both operands leave one value on separate ways; the plainer way is the shortcut."""
    if next_sum(total) is not None:
        return None
    fork = last_common(left, right)
    if fork is None or fork in (left, right) or not fork.floating:
        return None
    weights = [weight_between(fork, node) for node in (left, right)]
    if weights[0] == weights[1]:
        return None
    return _Verdict(weights.index(min(weights)), False, (fork,), linear=min(weights) == 0)


def _projects_a_state(total: Node, verdict: _Verdict, later: _Steps, known: _Steps) -> bool:
    """The fork entered the module, or lies on the way of a network that this code holds whole.

    Inside of a branch a sum of two ways is none: a layer with several paths. Nor is a sum behind
    which other steps lie, such as that of two scales.
    """
    [fork] = verdict.origin
    if fork.op == "argument":
        return True
    if _in_a_branch(total, later):
        return False
    if _looks_like_an_argument(fork):
        return True
    if any(precedes(fork, other) and precedes(other, total) for other, _ in known):
        return False
    return any(
        reaches(other, fork) or all(reaches(total, n) for n in found.origin)
        for other, found in known
    )


def _in_a_branch(total: Node, steps: _Steps) -> bool:
    """A step has the sum on its way from where it begins to what it adds."""
    return any(
        precedes(origin, total) and any(reaches(total, n) for n in outer.operands if n)
        for outer, found in steps
        for origin in found.origin
    )


def _looks_like_an_argument(node: Node) -> bool:
    """The value entered the module, or is an entering one after a norm or activation."""
    return any(
        other.op == "argument" and other.shape == node.shape and reaches(other, node)
        for other in node.frame.nodes[: node.index + 1]
    )


WEIGHTED = frozenset((
    "call", "conv1d", "conv2d", "conv3d", "linear", "matmul", "einsum", "bmm", "__matmul__",
    "convolution", "_convolution", "mm", "addmm", "baddbmm",
))  # fmt: skip


def _is_branch(root: Node, rate: Node) -> bool:
    """Something with weights, and not just a sum of parallel linear maps."""
    way = between(root, rate)
    if not any(node.op in WEIGHTED for node in way):
        return False
    return any(node.weight for node in way) or not any(node.sums for node in way)


def _is_the_way_on(total: Node, verdict: _Verdict, later: _Steps) -> bool:
    """Every path from the origin leads through the sum.

    All those to results that the sum reaches; or, where the state was made in the same code, all
    those to a later step that begins at the sum. A sum of several non-linear ways needs the first.
    """
    consumer = next_sum(total)
    if consumer is not None and _is_the_way_on(consumer, verdict, later):
        return True
    around = set(verdict.origin) - {total}
    for node in total.frame.nodes:
        if node is not total and not around.isdisjoint(node.inputs):
            around.add(node)
    results = [n for n in total.frame.returned if reaches(total, n)]
    if results and around.isdisjoint(results):
        return True
    if not verdict.linear or any(n.op == "argument" for n in verdict.origin):
        return False
    return any(
        after not in around and all(reaches(total, n) for n in found.origin)
        for after, found in later
    )


def _describe(total: Node, verdict: _Verdict) -> Found:
    state, rate = total.operands[verdict.state_operand], total.operands[1 - verdict.state_operand]
    assert state is not None
    assert rate is not None
    gated = list(gates(rate))
    for product, _ in gated:
        if product.number < 0:
            raise StepError(
                f"In {_place(product.frame)} a step size is multiplied inside a function that "
                "cannot be watched (TorchScript, say), so that it cannot be told from the rate. "
                "Make that function plain Python."
            )
    at = Site(total.frame.path, "add", total.number, verdict.state_operand, 0, len(state.shape))
    rate_at, rate_shape = replace(at, operand=1 - verdict.state_operand), rate.shape
    if gated:
        product, operand = gated[-1]
        source = product.operands[operand]
        assert source is not None
        rate_shape = source.shape
        rate_at = Site(product.frame.path, "mul", product.number, operand, 0, len(rate_shape))
    plain = before_gates(rate)
    ways = [node for origin in verdict.origin for node in between(origin, plain)]
    if not ways:  # nothing but a gate
        ways = [node for origin in verdict.origin for node in between(origin, rate)]
    if not ways and rate.op == "argument":  # an addition module: look in the code that calls it
        outside = [node.outer for node in verdict.origin if node.outer is not None]
        ways = [n for a in outside for b in outside if a.frame is b.frame for n in between(a, b)]
    return Found(
        state_at=at,
        state_shape=state.shape,
        rate_at=rate_at,
        rate_shape=rate_shape,
        identity=verdict.identity,
        branch=tuple(dict.fromkeys(n.called.path for n in ways if n.called is not None)),
        gates=tuple(dict.fromkeys(product.frame.path for product, _ in gated)),
        total=total,
    )
