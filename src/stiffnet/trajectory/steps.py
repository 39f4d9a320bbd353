"""Finding the residual steps of any network.

A step is an addition, in the code of one module, of a *state* and a *rate* that was computed from
that state, whose sum is what the module's code goes on with. Three questions decide:

1. Where does the state come from? Either it is handed through unchanged and the rate was computed
   from it (an identity shortcut), or both operands leave one value on separate ways, of which the
   state's is the plainer (a projection), or it came in as an argument of its own.
2. Is the sum the module's way on? Every path from the state to the module's result must lead
   through it. This leaves out rotary embeddings, attention biases, multi-scale sums and the cells
   of NASNet.
3. Is it more than one linear map? A sum of parallel linear branches, as RepVGG, MobileOne and
   RepViT train them, is a single convolution in disguise and no step.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.errors import StepError
from stiffnet.trajectory.graph import (
    ADDITIONS,
    SAME_VALUES,
    SCALINGS,
    Frame,
    Node,
    Watch,
    tensors_in,
)
from stiffnet.trajectory.wrappers import plain_run, unwrap

PROBE_BATCHES = (2, 3)  # two batch sizes, to see which axis of a state counts the samples


@dataclass(frozen=True)
class Site:
    """Where in a forward pass a value can be met: one operand of one addition or product.

    Additions and products are numbered within the own code of a module, over one forward pass.
    """

    module: str
    kind: str  # "add", "mul", or "block" for the change that a whole module makes
    number: int
    operand: int
    of: int  # how many of its kind the module's code has in one pass
    dims: int  # number of axes of the value
    axis: int = 0  # which axis counts the samples
    fold: int = 1  # how many entries of that axis belong to one sample


@dataclass(frozen=True)
class Step:
    """One residual addition of a network."""

    name: str
    """The module's path; ``path#1`` for the second addition in it."""
    stage: int
    """Number of the run of steps with one state shape, from 0."""
    shape: tuple[int, ...]
    """Shape of the state of one sample."""
    identity: bool
    """The shortcut hands the state through unchanged."""
    counted: bool
    """Enters TNS and the stiffness proportion: every step of a stage but its first."""
    branch: tuple[str, ...]
    """Paths of the modules that compute the rate."""
    gates: tuple[str, ...]
    """Paths of what multiplies the rate with a step size: attention, layer scale, a constant."""
    state_at: Site
    increment_at: Site
    rate_at: Site

    @property
    def module(self) -> str:
        """Path of the module whose code adds; a gate would go on `increment_at` in it."""
        return self.state_at.module


def steps(model: nn.Module, example: Any) -> list[Step]:
    """Find the residual steps of a network, in the order in which they run.

    Args:
        model: Any network. It is run twice in evaluation mode, on a few samples, and left as it
            was. Compiled, data-parallel and Fabric wrappers are looked through.
        example: One batch: a tensor, a tuple of positional or a dictionary of keyword arguments.
            Its first axis counts the samples.

    Raises:
        StepError: If the network has none (VGG, DenseNet), or cannot be run on the example.

    Example:
        >>> import timm, torch
        >>> model = timm.create_model("resnet18")
        >>> found = steps(model, torch.rand(1, 3, 64, 64))
        >>> [(step.name, step.stage, step.shape) for step in found[:3]]
        [('layer1.0', 0, (64, 16, 16)), ('layer1.1', 0, (64, 16, 16)), ('layer2.0', 1, (128, 8, 8))]
    """
    return steps_of_call(model, *as_arguments(example))


def steps_of_call(model: nn.Module, args: Any, kwargs: Any) -> list[Step]:
    """Find the steps that ``model(*args, **kwargs)`` takes; see `steps`."""
    model = unwrap(model)
    if isinstance(model, torch.jit.ScriptModule):
        raise StepError(
            f"{type(model).__name__} is TorchScript as a whole, which cannot be looked into. "
            "Measure the Python module that it was made from."
        )
    if any(tensor.ndim and not len(tensor) for tensor in tensors_in((args, kwargs))):
        raise StepError("The example batch is empty. Give at least one sample.")
    found, other = (_additions(model, args, kwargs, size) for size in PROBE_BATCHES)
    if [c.key for c in found] != [c.key for c in other]:
        raise StepError(
            f"{type(model).__name__} took different additions on {PROBE_BATCHES[0]} and on "
            f"{PROBE_BATCHES[1]} samples. Its steps depend on the batch size; measure a network "
            "whose code does not."
        )
    if not found:
        raise StepError(
            f"{type(model).__name__} has no residual steps: no addition in it joins a state with "
            "a branch computed from that state (VGG, DenseNet and ShuffleNet have none). "
            "Measure a residual network."
        )
    return _in_stages([a.step(b) for a, b in zip(found, other, strict=True)])


@dataclass(frozen=True)
class _Found:
    """One step as one probe saw it, with the shapes of that probe's batch."""

    module: str
    kind: str
    number: int
    state_operand: int
    state_shape: tuple[int, ...]
    identity: bool
    branch: tuple[str, ...]
    gates: tuple[str, ...]
    rate: tuple[str, str, int, int]  # module, kind, number, operand
    rate_shape: tuple[int, ...]
    of: int = 0  # how many additions the module's code has
    rate_of: int = 0

    @property
    def key(self) -> tuple[object, ...]:
        return (self.module, self.kind, self.number, self.state_operand, self.rate)

    def step(self, other: "_Found") -> Step:
        """Combine two probes into a step whose sample axes are known."""
        axis, fold = _sample_axis(self.module, self.state_shape, other.state_shape)
        rate_axis, rate_fold = _sample_axis(self.module, self.rate_shape, other.rate_shape)
        kept = tuple(n for i, n in enumerate(self.state_shape) if i != axis)
        at = Site(
            self.module, self.kind, self.number, self.state_operand, self.of,
            len(self.state_shape), axis, fold,
        )  # fmt: skip
        return Step(
            name=self.module.replace("._orig_mod", "").removeprefix("_orig_mod."),
            stage=0,
            shape=kept if fold == 1 else (fold, *kept),
            identity=self.identity,
            counted=True,
            branch=self.branch,
            gates=self.gates,
            state_at=at,
            increment_at=replace(at, operand=1 - self.state_operand),
            rate_at=Site(*self.rate, self.rate_of, len(self.rate_shape), rate_axis, rate_fold),
        )


def _sample_axis(module: str, few: tuple[int, ...], many: tuple[int, ...]) -> tuple[int, int]:
    """Axis that grew with the number of samples, and its entries per sample."""
    less, more = PROBE_BATCHES
    grown = [i for i, (a, b) in enumerate(zip(few, many, strict=True)) if a != b]
    if len(grown) != 1 or few[grown[0]] * more != many[grown[0]] * less:
        raise StepError(
            f"The state in {module!r} has shape {few} for {less} samples and {many} for {more}, "
            "so no one axis counts the samples. Give a batch whose first axis is the sample."
        )
    return grown[0], few[grown[0]] // less


def _in_stages(found: list[Step]) -> list[Step]:
    """Number the additions of each module and the runs of one state shape."""
    staged: list[Step] = []
    seen: dict[str, int] = {}
    for step in found:
        first = not staged or not _one_state(staged[-1].shape, step.shape)
        stage = staged[-1].stage + first if staged else 0
        nth = seen.get(step.name, 0)
        seen[step.name] = nth + 1
        name = f"{step.name}#{nth}" if nth else step.name
        staged.append(replace(step, name=name, stage=stage, counted=not first))
    return staged


def _one_state(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Equal shapes, or the same entries laid out otherwise (Swin flattens its map in each block).

    >>> _one_state((56, 56, 96), (3136, 96)), _one_state((64, 56, 56), (256, 28, 28))
    (True, False)
    """
    return math.prod(one) == math.prod(other) and not set(one).isdisjoint(other)


def _additions(model: nn.Module, args: Any, kwargs: Any, size: int) -> list[_Found]:
    """Run `size` samples through the model and apply the rule to every frame."""
    args, kwargs = resized(args, size), resized(kwargs, size)
    with plain_run(model), Watch(model, (args, kwargs)) as watch:
        try:
            model(*args, **kwargs)
        except Exception as error:
            shapes = ", ".join(str(tuple(t.shape)) for t in tensors_in((args, kwargs)))
            raise StepError(
                f"{type(model).__name__} cannot be run on inputs of shape {shapes}: "
                f"{_first_line(error)} Give an example that the network takes."
            ) from error
    found = [*_residual_additions(watch.frames), *_opaque_blocks(watch.frames)]
    return [
        replace(
            step,
            of=watch.totals.get((step.module, step.kind), 0),
            rate_of=watch.totals.get(step.rate[:2], 0),
        )
        for _, step in sorted(found, key=lambda pair: pair[0])
    ]


def as_arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Read an example as the positional and keyword arguments of a call."""
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, list | tuple):
        return tuple(example), {}
    return (example,), {}


def samples_in(value: Any) -> int:
    """Number of samples in a batch: the length of its first tensor, or of a list of them."""
    if isinstance(value, Tensor):
        return len(value) if value.ndim else 0
    if isinstance(value, list) and value and all(isinstance(item, Tensor) for item in value):
        return len(value)
    parts = value.values() if isinstance(value, Mapping) else value
    if isinstance(parts, str) or not isinstance(parts, Iterable):
        return 0
    return next((n for part in parts if (n := samples_in(part))), 0)


def resized(batch: Any, size: int) -> Any:
    """A batch of the first `size` samples, from the beginning again where there are fewer.

    Tensors and lists of another length than the batch (a mask, say) are left alone.
    """
    count = samples_in(batch)

    def change(value: Any) -> Any:
        if isinstance(value, Tensor) and value.ndim and len(value) == count:
            return value[torch.arange(size, device=value.device) % count]
        if isinstance(value, list) and len(value) == count:
            return [value[i % count] for i in range(size)]
        if isinstance(value, list | tuple):
            return tuple(change(item) for item in value)
        if isinstance(value, Mapping):
            return {key: change(item) for key, item in value.items()}
        return value

    return change(batch) if count else batch


def _first_line(error: Exception) -> str:
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return line if line.endswith((".", "!", "?")) else line + "."


# --- the rule -------------------------------------------------------------------------------


def _residual_additions(frames: Iterable[Frame]) -> Iterator[tuple[int, _Found]]:
    for frame in frames:
        for node in frame.nodes:
            if node.op in ADDITIONS and node.floating:
                verdict = _judge(node)
                if verdict is not None:
                    yield node.time, _describe(node, verdict)


@dataclass(frozen=True)
class _Verdict:
    state_operand: int
    identity: bool
    origin: tuple[Node, ...]  # where the branch begins


def _judge(total: Node) -> _Verdict | None:
    """Decide whether an addition is a step, and which operand is its state."""
    if len(total.operands) != 2:
        return None
    left, right = total.operands
    if left is None or right is None or left is right:
        return None
    if not left.shape == right.shape == total.shape:
        return None
    for rule in (_identity, _argument, _projection):
        verdict = rule(total, left, right)
        if verdict is not None:
            negated = verdict.state_operand == 1 and total.op.startswith("sub")
            return verdict if not negated and _is_the_way_on(total, verdict.origin) else None
    return None


def _identity(total: Node, left: Node, right: Node) -> _Verdict | None:
    """The rate was computed from the state, which is handed through."""
    for operand, (state, rate) in enumerate(((left, right), (right, left))):
        for root in _stream(state):
            if _precedes(root, rate) and _is_branch(root, rate):
                return _Verdict(operand, True, (root,))
    return None


def _argument(total: Node, left: Node, right: Node) -> _Verdict | None:
    """The state is an argument of the module, the rate was computed from another one."""
    for operand, (state, rate) in enumerate(((left, right), (right, left))):
        root = _stream(state)[-1]
        if root.op != "argument" or root.outer is None:
            continue
        sources = [
            node for node in root.frame.nodes
            if node.op == "argument" and node.outer is not None and node is not root
            and (node is rate or _precedes(node, rate))
        ]  # fmt: skip
        relations = {_relation(root.outer, source.outer) for source in sources if source.outer}
        if relations - {None}:
            return _Verdict(operand, "identity" in relations, (root, *sources))
    return None


def _relation(state: Node, source: Node) -> str | None:
    """How an argument called the state relates to the argument that the rate came from."""
    while state.frame is source.frame:
        for root in _stream(state):
            if root is source or (_precedes(root, source) and _is_branch(root, source)):
                return "identity"
        if _fork(state, source) is not None:
            return "projection"
        if state.op != "argument" or source.op != "argument":
            return None
        if state.outer is None or source.outer is None:
            return None
        state, source = state.outer, source.outer
    return None


def _projection(total: Node, left: Node, right: Node) -> _Verdict | None:
    """Both operands leave one value on separate ways; the plainer way is the shortcut."""
    if _only_feeds_a_sum(total):
        return None
    fork = _fork(left, right)
    if fork is None or fork in (left, right) or not _looks_like_an_argument(fork):
        return None
    weights = [_weight_between(fork, node) for node in (left, right)]
    if weights[0] == weights[1]:
        return None
    return _Verdict(weights.index(min(weights)), False, (fork,))


def _fork(left: Node, right: Node) -> Node | None:
    """The last value that both came from, if all they share lies at or before it."""
    common = left.before & right.before
    if not common:
        return None
    fork = left.frame.nodes[common.bit_length() - 1]
    return fork if fork.before == common else None


def _looks_like_an_argument(node: Node) -> bool:
    """The value entered the module, or is an entering one after a norm or activation."""
    return any(
        other.op == "argument" and other.shape == node.shape
        for other in node.frame.nodes[: node.index + 1]
        if _precedes(other, node) or other is node
    )


def _stream(node: Node) -> list[Node]:
    """`node` and what it is but for rearrangements and earlier additions, nearest first."""
    seen, queue = [], [node]
    while queue:
        current = queue.pop(0)
        seen.append(current)
        if current.op in SAME_VALUES:
            queue.append(current.inputs[0])
        elif current.op in ADDITIONS:
            queue.extend(n for n in current.operands if n is not None and n.shape == node.shape)
    return seen


def _precedes(earlier: Node, later: Node) -> bool:
    return earlier is not later and bool(later.before >> earlier.index & 1)


def _between(start: Node, end: Node) -> list[Node]:
    """Values on the ways from `start` (without it) to `end` (with it)."""
    return [n for n in start.frame.nodes if _precedes(start, n) and (n is end or _precedes(n, end))]


def _weight_between(start: Node, end: Node) -> int:
    return sum(node.weight for node in _between(start, end))


WEIGHTED = ("call", "conv1d", "conv2d", "conv3d", "linear", "matmul", "einsum", "bmm", "__matmul__")


def _is_branch(root: Node, rate: Node) -> bool:
    """Something with weights, and not just a sum of parallel linear maps."""
    way = _between(root, rate)
    if not any(node.op in WEIGHTED for node in way):
        return False
    return any(node.weight for node in way) or not any(node.sums for node in way)


def _is_the_way_on(total: Node, origin: tuple[Node, ...]) -> bool:
    """Every path from the origin to a result that the sum reaches leads through the sum."""
    if _only_feeds_a_sum(total):
        [consumer] = _consumers(total)
        if _is_the_way_on(consumer, origin):
            return True
    results = [n for n in total.frame.returned if n is total or _precedes(total, n)]
    around = set(origin) - {total}
    for node in total.frame.nodes:
        if node is not total and not around.isdisjoint(node.inputs):
            around.add(node)
    return bool(results) and around.isdisjoint(results)


def _consumers(node: Node) -> list[Node]:
    return [n for n in node.frame.nodes if node in n.inputs]


def _only_feeds_a_sum(node: Node) -> bool:
    consumers = _consumers(node)
    return (
        len(consumers) == 1
        and consumers[0].op in ADDITIONS
        and consumers[0].shape == node.shape
        and node not in node.frame.returned
    )


# --- what a step consists of -------------------------------------------------------------------


def _describe(total: Node, verdict: _Verdict) -> _Found:
    state, rate = total.operands[verdict.state_operand], total.operands[1 - verdict.state_operand]
    assert state is not None
    assert rate is not None
    gated = list(_gates(rate))
    site = (total.frame.path, "add", total.number, 1 - verdict.state_operand)
    rate_shape = rate.shape
    if gated:
        product, operand = gated[-1]
        source = product.operands[operand]
        assert source is not None
        site = (product.frame.path, "mul", product.number, operand)
        rate_shape = source.shape
    ways = [node for origin in verdict.origin for node in _between(origin, rate)]
    if not ways and rate.op == "argument":  # an addition module: look in the code that calls it
        outside = [node.outer for node in verdict.origin if node.outer is not None]
        ways = [n for a in outside for b in outside if a.frame is b.frame for n in _between(a, b)]
    return _Found(
        module=total.frame.path,
        kind="add",
        number=total.number,
        state_operand=verdict.state_operand,
        state_shape=state.shape,
        identity=verdict.identity,
        branch=tuple(dict.fromkeys(n.called.path for n in ways if n.called is not None)),
        gates=tuple(dict.fromkeys(product.frame.path for product, _ in gated)),
        rate=site,
        rate_shape=rate_shape,
    )


def _gates(rate: Node) -> Iterator[tuple[Node, int]]:
    """Products that scale the branch just before the addition, outermost first.

    A gate multiplies with a constant, a parameter, or a value with fewer entries. Modules are
    looked into, so SE, LayerScale or a scale in the block's own code are all found; norms are not.
    """
    node: Node | None = rate
    while node is not None:
        if node.op in SAME_VALUES:
            node = node.inputs[0]
        elif node.op in SCALINGS:
            operand = _scaled_operand(node)
            if operand is None:
                return
            yield node, operand
            node = node.operands[operand]
        elif node.op == "call" and node.called is not None and not _is_norm(node.called.module):
            node = node.inner
        elif node.op == "argument":
            node = node.outer
        else:
            return


def _scaled_operand(product: Node) -> int | None:
    sizes = [0 if n is None else _size(n) for n in product.operands]
    if len(sizes) != 2 or sizes[0] == sizes[1]:
        return None
    scaled = sizes.index(max(sizes))
    node = product.operands[scaled]
    if node is None or node.shape != product.shape:
        return None
    return None if scaled == 1 and product.op not in ("mul", "mul_") else scaled


def _size(node: Node) -> int:
    while node.op in ("expand", "expand_as", "unsqueeze", "view", "reshape"):
        node = node.inputs[0]
    return math.prod(node.shape)


def _is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower()


def _opaque_blocks(frames: list[Frame]) -> Iterator[tuple[int, _Found]]:
    """Blocks whose code cannot be watched (TorchScript): read by what goes in and comes out.

    Such a block counts as a step where it stands among siblings of its kind and keeps the shape.
    """
    opaque = [f for f in frames if isinstance(f.module, torch.jit.ScriptModule) and f.parent]
    kinds = Counter((f.parent, f.module.original_name) for f in opaque)
    calls: Counter[str] = Counter()
    for frame in opaque:
        entered = [node.shape for node in frame.nodes if node.op == "argument"]
        calls[frame.path] += 1
        if kinds[frame.parent, frame.module.original_name] > 1 and (
            entered[:1] == frame.result_shapes[:1] != []
        ):
            number, shape = calls[frame.path] - 1, entered[0]
            yield frame.nodes[0].time, _Found(
                frame.path, "block", number, 0, shape, True, (frame.path,), (),
                (frame.path, "block", number, 1), shape,
            )  # fmt: skip
