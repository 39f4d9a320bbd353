"""A block with a gate in it: the same object, of a class whose code also calls the gate.

The class is made of the block's own: the methods that add have the call of a gate in their text,
around the rate. Nothing else of the block changes: children, tensors, hooks, settings and the rest
of its code are what they were, and giving the class back undoes it. A gate is a child of the block.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Optional
from weakref import WeakValueDictionary

import torch
from torch import Tensor, fx, nn

from stiffnet.errors import StepError
from stiffnet.network.deployed import METHODS
from stiffnet.network.method_source import Method, Unreadable, method_of_class
from stiffnet.network.source_edits import EVERY, Gate, Turn, with_gates
from stiffnet.words import first_line

CHILD = "step_size"
"""Name of a gate among the children of its block; the second step's is ``step_size1``, and a second
gate on one step ``step_size_2``."""


@dataclass(frozen=True)
class Plan:
    """The gates of one block, and the code that they are called in."""

    gates: tuple[Gate, ...]  # in the order in which they were attached
    sources: tuple[str, ...] = ()  # digests of the methods' texts as they were then, in order

    @property
    def methods(self) -> list[tuple[int, str]]:
        """Which methods are changed: the class in the method resolution order, and the name."""
        return sorted({(gate.spot.depth, gate.spot.method) for gate in self.gates})


class Gated:
    """What the class of a block with gates has besides the block's own."""

    gated_class: ClassVar[type[nn.Module]]
    """The block's own class."""
    gated_plan: ClassVar[Plan]

    def __reduce_ex__(self, protocol: Any) -> Any:
        reduced: Any = super().__reduce_ex__(2)
        return _rebuilt, (self.gated_class, self.gated_plan), *reduced[2:]

    def in_turns(self, over: Iterable[Any]) -> Iterator[tuple[int | str, Any]]:
        """Go through a loop; tell turns by the path of the layer that they are for, or number them.

        So a loop that begins at a later layer comes to the gates of that layer.
        """
        paths = {module: path for path, module in self.named_modules()}  # type: ignore[attr-defined]
        met: list[str] = []
        for number, item in enumerate(over):
            parts = item if isinstance(item, tuple) else (item,)
            modules = [part for part in parts if isinstance(part, nn.Module)]
            layers = [paths[module] for module in modules if module in paths]
            if not layers:
                yield number, item
                continue
            met.append(layers[0])
            again = met.count(layers[0])
            yield (layers[0] if again == 1 else f"{layers[0]}, call {again}"), item

    def gate_in_loop(self, key: tuple[Any, ...], turn: Turn, rate: Any, state: Any = None) -> Any:
        """Call the gates of one turn of a loop, if it took that turn when they were attached."""
        here = [
            gate
            for gate in self.gated_plan.gates
            if (gate.spot.depth, gate.spot.method, gate.spot.number, gate.spot.operand) == key
        ]
        known = [seen for gate in here for seen in gate.turns]
        if known and turn not in known:
            said = [repr(part) if isinstance(part, str) else f"number {part + 1}" for part in turn]
            raise StepError(
                f"A {type(self).__name__} takes a turn of its loop ({', '.join(said)}) that it did "
                f"not take when modules were attached to its steps ({len(set(known))} turns), so "
                "that there is no module for it. Detach, and attach on an `example` that takes all."
            )
        for gate in here:
            spot, module = gate.spot, getattr(self, gate.child)
            if spot.loop == EVERY:
                rate = module(rate, state, turn)
            elif spot.loop in (None, turn):
                rate = module(rate, state) if gate.with_state else module(rate)
        return rate

    def not_elsewhere(self, rate: Tensor, state: Optional[Tensor] = None) -> Tensor:  # noqa: UP045
        """Pass on an operand, unless it makes a step where no gate is called."""
        if torch.jit.is_scripting():  # type: ignore[attr-defined]
            if state is not None:
                assert state.shape != rate.shape, "a step where no module was attached"
        else:
            _refuse_elsewhere(self, rate, state)
        return rate


def _refuse_elsewhere(block: Any, rate: Any, state: Any) -> None:
    if isinstance(rate, Tensor) and isinstance(state, Tensor | None):
        one_shape = rate.ndim > 2 if state is None else state.shape == rate.shape
        is_step = rate.is_floating_point() and one_shape
    else:
        is_step = isinstance(rate, fx.Proxy)
    if is_step:
        raise StepError(
            f"A {type(block).__name__} with an attached module takes another way in this call than "
            "in the one in which its step was found, and adds where the module is not called. "
            "Detach, and attach on an `example` that goes this way, or change the code so that "
            "both ways meet before the addition."
        )


def keep_in_python(gate: nn.Module, block: nn.Module) -> nn.Module:
    """Keep torch's own encoder layer from running fused, without its gates, in evaluation.

    It does so unless one of its children has a hook; a gate goes away with its own.
    """
    if isinstance(block, nn.TransformerEncoderLayer):
        gate.register_forward_hook(_nothing)
    return gate


def has_hooks(module: nn.Module) -> bool:
    """Whether a module has forward hooks of somebody else's."""
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    return any(hook is not _nothing for hook in hooks)


def _nothing(module: nn.Module, args: Any, result: Any) -> None:
    """Do nothing: it is there."""


_NESTED, _BEFORE = "use_nested_tensor", "_nested_before_gates"


def keep_padded(model: nn.Module) -> None:
    """Keep torch's own encoder from giving nested tensors to layers with gates.

    Few modules take those. An encoder without gates does again what it did.
    """
    for module in model.modules():
        if not isinstance(module, nn.TransformerEncoder):
            continue
        has_gates = any(gates_of(part) for part in module.modules())
        if has_gates and getattr(module, _NESTED, False):
            vars(module).update({_NESTED: False, _BEFORE: True})
        elif not has_gates and _BEFORE in vars(module):
            setattr(module, _NESTED, vars(module).pop(_BEFORE))


_MADE: WeakValueDictionary[tuple[type, Plan], type] = WeakValueDictionary()


def gated(original: type[nn.Module], gates: tuple[Gate, ...]) -> type[Any]:
    """Make the class of blocks of some class with gates; its `gated_plan` is what it follows.

    Raises Unreadable if the source of a method cannot be had or changed.
    """
    if issubclass(original, fx.GraphModule):
        raise Unreadable(
            "it is a graph of `torch.fx`, which makes its code and its copies anew, without the "
            "module; attach to the network before it is traced"
        )
    plan = Plan(gates)
    methods = [method_of_class(original, *key) for key in plan.methods]
    plan = replace(plan, sources=tuple(_digest(method.source) for method in methods))
    made = _MADE.get((original, plan))
    if made is None:
        try:
            made = _MADE[original, plan] = _subclass(original, plan, methods)
        except (SyntaxError, TypeError, ValueError, RecursionError) as error:
            reason = first_line(error)
            raise Unreadable(
                f"no subclass with changed code can be made of it ({reason})"
            ) from error
    return made


def _subclass(original: type[nn.Module], plan: Plan, methods: list[Method]) -> type[Any]:
    by_depth: dict[int, dict[str, Callable[..., Any]]] = defaultdict(dict)
    for (depth, name), method in zip(plan.methods, methods, strict=True):
        here = [g for g in plan.gates if (g.spot.depth, g.spot.method) == (depth, name)]
        text = with_gates(method, here)
        changed = method.changed(text, _digest(text)[:8])
        by_depth[depth] |= dict.fromkeys(method.names, changed)
    # A method of a base class is changed in a class of its own, which stands just before that base
    # among the bases: whoever calls it by `super()` still does, and comes to the changed one.
    bases: list[type] = [Gated, original]
    for depth in sorted(set(by_depth) - {0}):
        base = original.__mro__[depth]
        bases.append(_named(base, (base,), {"patched_depth": depth, **by_depth[depth]}))
    body = {"gated_class": original, "gated_plan": plan, "patched_depth": 0, **by_depth[0]}
    own = [name for name in (*_COPYING, *METHODS) if callable(getattr(original, name, None))]
    body |= {name: _checked(name) for name in own}
    return _named(original, tuple(bases), body)


_COPYING = ("__copy__", "__deepcopy__")


def _checked(name: str) -> Callable[..., Any]:
    """A method by which blocks are copied or join their branches, seen to keep the gates."""

    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        gates = self.gated_plan.gates
        made = getattr(self.gated_class, name)(self, *args, **kwargs)
        another = isinstance(made, nn.Module) and made is not self
        if name not in _COPYING and (another or gates_of(self) != gates):
            raise StepError(
                f"The `{name}` of {type(self).__name__} makes a layer that knows nothing of the "
                "attached module. Use `stiffnet.fold`, which leaves such a block as it is unless "
                "the module can be folded first."
            )
        if name in _COPYING and (
            gates_of(made) != gates or any(gate.child not in made._modules for gate in gates)
        ):
            raise StepError(
                f"The `{name}` of {type(self).__name__} makes a block without the attached module. "
                "Detach before copying, or let it copy `type(self)` and all children."
            )
        return made

    return checked


def _named(like: type, bases: tuple[type, ...], body: dict[str, Any]) -> type[Any]:
    named = {
        "__module__": like.__module__,
        "__qualname__": like.__qualname__,
        "__doc__": like.__doc__,
    }
    return type(like)(like.__name__, bases, named | body)


def _digest(text: str) -> str:
    return hashlib.sha256(text.strip().encode()).hexdigest()


def _rebuilt(original: type[nn.Module], plan: Plan) -> nn.Module:
    """Make an empty block on its way out of a pickle or a copy."""
    try:
        made = gated(original, plan.gates)
    except Unreadable as reason:
        raise StepError(
            f"A module was attached to a {original.__name__}, and that cannot be done again: "
            f"{reason}. Attach again to a new network, and load the weights into that."
        ) from reason
    if made.gated_plan != plan:
        raise StepError(
            f"The code of {original.__name__} is not what it was when a module was attached to it. "
            "Attach again to a new network, and load the weights into that."
        )
    block: Any = object.__new__(made)
    return block  # type: ignore[no-any-return]


def put(block: nn.Module, gates: tuple[Gate, ...]) -> None:
    """Give a block the class that calls these gates, and no others, or raise Unreadable."""
    block.__class__ = gated(original_class(block), gates)


def take_out(block: nn.Module, children: Collection[str] | None = None) -> None:
    """Let gates of a block go, all or some; without any it has its own class back.

    Gates that stay are called what they would be if the others had never been there.

    Raises:
        StepError: If someone else has changed the block's class since.
    """
    assert isinstance(block, Gated)
    if "gated_plan" not in type(block).__dict__:
        raise StepError(
            f"The class of a {block.gated_class.__name__} was changed after a module was attached "
            "(by a parametrization, say). Undo that first."
        )
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
        put(block, tuple(stay))


def gate_name(nth: int, there: int) -> str:
    """Name a gate on the nth step of a block that has some on it already.

    >>> gate_name(0, 0), gate_name(1, 0), gate_name(0, 1)
    ('step_size', 'step_size1', 'step_size_2')
    """
    return CHILD + (str(nth) if nth else "") + (f"_{there + 1}" if there else "")


def original_class(block: nn.Module) -> type[nn.Module]:
    """Return the class that a block has without gates."""
    return block.gated_class if isinstance(block, Gated) else type(block)


def gates_of(block: nn.Module) -> tuple[Gate, ...]:
    """Return the gates that a block has."""
    return block.gated_plan.gates if isinstance(block, Gated) else ()
