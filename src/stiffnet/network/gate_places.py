"""The places of a network that can take a gate, with all that is needed to plug one in."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.errors import StepError
from stiffnet.nested import mapped
from stiffnet.network.channel_axis import LARGER, channel_axis, steady_axis
from stiffnet.network.gated_block import gate_name, gates_of, original_class
from stiffnet.network.method_source import Method, Unreadable, method_of
from stiffnet.network.positions import Position
from stiffnet.network.source_edits import EVERY, Gate, Spot, loops_around
from stiffnet.network.where import Where, chosen
from stiffnet.trajectory.batch import Example
from stiffnet.trajectory.places import Line, Met, Places
from stiffnet.trajectory.steps import Step, run_on
from stiffnet.trajectory.wrappers import plain_run
from stiffnet.words import few


@dataclass(frozen=True, eq=False)
class Socket:
    """A place that takes a gate."""

    name: str  # of the step or position
    block: str  # path of the module that gets the gate as a child
    gate: Gate  # what it will be called there, and where in the code
    group: int  # its stage; for positions, the run of maps of one shape
    shape: tuple[int, ...]  # of the rate, batch axis first
    axis: int  # of the channels
    numbers: tuple[int, ...] = ()  # its additions in a pass; several if its block runs repeatedly
    steps: tuple[str, ...] = ()  # the steps that these are
    step: Step | None = None
    dtype: torch.dtype | None = None  # of the rate; None where the block's weights tell

    @property
    def channels(self) -> int:
        """Width of the rate."""
        return self.shape[self.axis]

    def calling(self, module: nn.Module) -> "Socket":
        """Let this module be called here, with the state too if it needs that."""
        with_state = bool(getattr(module, "needs_state", False))
        return replace(self, gate=replace(self.gate, with_state=with_state))


def step_sockets(
    model: nn.Module, found: Sequence[Step], call: Example, where: Where
) -> list[Socket]:
    """Look at the steps that `where` chooses; raise a StepError if one cannot take a gate."""
    picked = chosen(found, where, kind="step", network=type(model).__name__)
    wanted = set(picked)
    paths = list(dict.fromkeys(step.module for step in picked))
    with plain_run(model), Places(model, paths) as places:
        run_on(model, call)
    met, grown = places.met, _met_on_more(model, paths, call)
    sockets: dict[str, Socket] = {}
    refused: dict[str, str] = {}
    for path in paths:
        own = [step for step in found if step.module == path]
        for nth, (steps, repeated) in enumerate(_steps_by_place(own, met)):
            asked = [step for step in steps if step in wanted]
            if not asked:
                continue
            try:
                if len(asked) < len(steps):
                    names = ", ".join(repr(other.name) for other in steps)
                    raise Unreadable(f"it runs several times, so that {names} go together")
                socket = _socket(model, steps, nth, met, grown, repeated=repeated)
                sockets[socket.name] = socket
            except Unreadable as reason:
                kind = type(model.get_submodule(path)).__name__
                refused |= {step.name: f"{kind}: {reason}" for step in asked}
    if refused:
        raise StepError(refusal("A module", "step", refused, len(picked)))
    return [sockets[step.name] for step in picked if step.name in sockets]


_Additions = Mapping[tuple[str, int], Met]


def _met_on_more(model: nn.Module, paths: list[str], call: Example) -> _Additions:
    """Additions of some modules on larger inputs; none where the network does not take them."""
    for larger in LARGER:
        with plain_run(model), Places(model, paths) as places:
            try:
                mapped(call, larger).on(model)
            except Exception:  # noqa: S112  # made for one size
                continue
        return places.met
    return {}


def _steps_by_place(own: Sequence[Step], met: _Additions) -> Iterator[tuple[list[Step], bool]]:
    """Group the steps of a block by the expression in which they add, and its turn in a call.

    With each group goes whether the expression runs several times in one call of the block.
    """
    turns: Counter[Any] = Counter()
    groups: dict[Any, list[Step]] = defaultdict(list)
    for step in own:
        place = met.get((step.module, step.increment_at.number))
        lines: tuple[Line, ...] = place.lines if place else ()
        key = (lines, place.call if place else step.name)
        groups[lines or step.name, turns[key]].append(step)
        turns[key] += 1
    often = {lines for (lines, _), count in turns.items() if count > 1}
    for (lines, _), steps in groups.items():
        yield steps, lines in often


def _socket(
    model: nn.Module,
    steps: list[Step],
    nth: int,
    met: _Additions,
    grown: _Additions,
    *,
    repeated: bool,
) -> Socket:
    """Look at the place of the nth steps of a block; raise Unreadable if it cannot take a gate."""
    step = steps[0]
    if len({other.increment_at.operand for other in steps}) > 1:
        raise Unreadable("it runs several times, with the state now left and now right of the sum")
    if step.increment_at.axis != 0:
        raise Unreadable("its first axis does not count the samples")
    block = model.get_submodule(step.module)
    at = (step.module, step.increment_at.number)
    spot = _spot(block, step, met.get(at), repeated=repeated)
    shape = met[at].shapes[spot.operand]
    larger = grown.get(at)
    if larger is not None and larger.lines != met[at].lines:  # the code went another way there
        larger = None
    return Socket(
        name=step.name,
        block=step.module,
        gate=Gate(child_name(block, nth), nth, spot),
        group=step.stage,
        shape=shape,
        axis=_axis(model, step, shape, larger),
        numbers=tuple(other.increment_at.number for other in steps),
        steps=tuple(other.name for other in steps),
        step=step,
        dtype=met[at].dtypes[spot.operand],
    )


def _spot(block: nn.Module, step: Step, met: Met | None, *, repeated: bool) -> Spot:
    """Find the expression in which a step adds, which was `met` in the code of `block`.

    Raises Unreadable if a gate cannot be called there, or not in each turn of what is `repeated`.
    """
    if isinstance(block, torch.jit.ScriptModule) or step.increment_at.kind != "add":
        raise Unreadable("it is TorchScript, whose code cannot be changed")
    if met is None:
        raise Unreadable("it does not add in the same way in every pass")
    method, line = _method(block, met)
    if line.start is None or line.end is None:
        raise Unreadable(
            "Python keeps no columns of its code, which tell where it adds; run Python without "
            "`-X no_debug_ranges`"
        )
    number = method.addition_at(line.start, line.end)
    if repeated and not loops_around(method, method.additions[number]):
        raise Unreadable("the expression in which it adds runs several times, in no loop around it")
    return Spot(
        depth=_depth(block, method),
        method=method.name,
        kind="addition",
        number=number,
        operand=step.increment_at.operand,
        loop=EVERY if repeated else None,
    )


def _method(block: nn.Module, met: Met) -> tuple[Method, Line]:
    """The innermost method of the block on the way to an addition, and where it went on there."""
    innermost, *outer = met.lines
    method = method_of(type(block), innermost.code)
    if method is not None:
        return method, innermost
    for line in outer:
        method = method_of(type(block), line.code) if line.own else None
        if method is not None:
            if line.start is not None and line.end is not None:
                try:
                    method.addition_at(line.start, line.end)
                except Unreadable:
                    break
            return method, line
    raise Unreadable(f"it adds in a function outside of its own code ({innermost})")


def _depth(block: nn.Module, method: Method) -> int:
    """Where the class of a method stands among the block's own; changed methods know that."""
    depth = method.owner.__dict__.get("patched_depth")
    return original_class(block).__mro__.index(method.owner) if depth is None else int(depth)


def _axis(model: nn.Module, step: Step, shape: tuple[int, ...], grown: Met | None) -> int:
    """Tell along which axis the channels of a rate lie, or raise Unreadable."""
    proven = grown and steady_axis(shape, grown.shapes[step.increment_at.operand])
    if proven:
        return proven
    branch = [model.get_submodule(path) for path in step.branch]
    block = model.get_submodule(step.module)
    axis = channel_axis(shape, branch) or channel_axis(shape, [block])
    if axis is None:
        raise Unreadable(
            f"where the channels of a rate of shape {shape} lie cannot be told; give an `example` "
            "of another size"
        )
    return axis


def child_name(block: nn.Module, nth: int) -> str:
    """Name the next gate on the nth step of a block; raise Unreadable if the name is taken."""
    there = sum(gate.nth == nth for gate in gates_of(block))
    name = gate_name(nth, there)
    if hasattr(block, name):
        raise Unreadable(f"it has something called {name!r} already")
    return name


def position_sockets(
    model: nn.Module, named: Sequence[Position], call: Example, where: Where
) -> list[Socket]:
    """Look at the positions that `where` chooses; raise a StepError if one cannot take a gate."""
    picked = chosen(named, where, kind="position", network=type(model).__name__)
    shapes = _shapes(model, picked, call)
    sockets: list[Socket] = []
    refused: dict[str, str] = {}
    for position in picked:
        block = model.get_submodule(position.name)
        try:
            sockets.append(_at(position, block, shapes.get(position.name), sockets))
        except Unreadable as reason:
            refused[position.name] = str(reason)
    if refused:
        raise StepError(refusal("A module", "position", refused, len(picked)))
    return sockets


def _at(position: Position, block: nn.Module, shape: Any, before: list[Socket]) -> Socket:
    if shape is None:
        raise Unreadable("it does not run on the example")
    if len(shape) < 3:
        raise Unreadable("what is there is not a batch of maps")
    last = before[-1] if before else None
    bases = original_class(block).__mro__
    depth = next(i for i, base in enumerate(bases) if "forward" in base.__dict__)
    spot = Spot(depth, "forward", "result" if position.side == "output" else "argument")
    return Socket(
        name=position.name,
        block=position.name,
        gate=Gate(child_name(block, 0), 0, spot),
        group=0 if last is None else last.group + (last.shape != shape),
        shape=shape,
        axis=channel_axis(shape, [block]) or 1,
    )


def _shapes(
    model: nn.Module, picked: Sequence[Position], call: Example
) -> dict[str, tuple[int, ...]]:
    """Run the network once, in evaluation; the shapes at some positions."""
    shapes: dict[str, tuple[int, ...]] = {}
    with ExitStack() as hooks, plain_run(model):
        for position in picked:

            def hook(_: nn.Module, given: Any, result: Any, at: Position = position) -> None:
                value = result if at.side == "output" else (given or (None,))[0]
                shapes[at.name] = tuple(value.shape) if isinstance(value, Tensor) else ()

            block = model.get_submodule(position.name)
            hooks.enter_context(block.register_forward_hook(hook, prepend=True))
        run_on(model, call)
    return shapes


def refusal(what: str, kind: str, refused: Mapping[str, str], of: int) -> str:
    """Say which places cannot take a module and why, reason by reason."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name, reason in refused.items():
        by_reason[reason].append(repr(name))
    parts = [f"{few(names)} ({reason.rstrip('.')})" for reason, names in by_reason.items()]
    kinds = kind + ("s" if of > 1 else "")
    return (
        f"{what} cannot be attached to {len(refused)} of {of} {kinds}: {'; '.join(parts)}. "
        "Nothing was changed; choose others with `where=`."
    )
