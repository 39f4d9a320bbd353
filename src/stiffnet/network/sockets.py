"""The places of a network that can take a gate, looked at closely enough to plug one in."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from stiffnet.errors import StepError
from stiffnet.network.channels import channel_axis
from stiffnet.network.gated import Gated, gate_name
from stiffnet.network.positions import Position
from stiffnet.network.rewrite import Reading, read
from stiffnet.network.tracing import Call, Untraceable, copied
from stiffnet.network.where import Where, chosen
from stiffnet.trajectory.graph import tensors_in
from stiffnet.trajectory.steps import Step
from stiffnet.trajectory.wrappers import plain_run


@dataclass(frozen=True, eq=False)
class Socket:
    """A place that takes a gate."""

    name: str
    """Of the step or position."""
    block: str
    """Path of the module that gets the gate as a child."""
    child: str
    """What the gate will be called there."""
    nth: int
    """Which of the block's steps it is."""
    group: int
    """Its stage; for positions, the run of maps of one shape."""
    shape: tuple[int, ...]
    """Of the rate, batch axis first."""
    axis: int
    """Of the channels."""
    step: Step | None = None
    reading: Reading | None = None
    side: Literal["output", "input"] = "output"

    @property
    def channels(self) -> int:
        """Width of the rate."""
        return self.shape[self.axis]


def step_sockets(
    model: nn.Module, found: Sequence[Step], args: Any, kwargs: Any, where: Where
) -> list[Socket]:
    """Look at the steps that `where` chooses.

    Raises:
        StepError: If it chooses none, or one whose block's code cannot be rewritten.
    """
    picked = chosen(found, where, kind="step", network=type(model).__name__)
    by_block: dict[str, list[Step]] = defaultdict(list)
    for step in picked:
        by_block[step.module].append(step)
    calls = calls_of(model, by_block, args, kwargs)
    sockets: dict[str, Socket] = {}
    refused: dict[str, str] = {}
    with plain_run(model):
        for path, wanted in by_block.items():
            block = model.get_submodule(path)
            own = [step for step in found if step.module == path]
            try:
                reading = read(block, calls[path], wanted)
                for socket in _in_block(model, block, own, wanted, reading):
                    sockets[socket.name] = socket
            except Untraceable as reason:
                refused |= {step.name: f"{type(block).__name__}: {reason}" for step in wanted}
    if refused:
        raise StepError(refusal("A module", "step", refused, len(picked)))
    return [sockets[step.name] for step in picked if step.name in sockets]


def _in_block(
    model: nn.Module, block: nn.Module, own: list[Step], wanted: list[Step], reading: Reading
) -> Iterable[Socket]:
    """One socket for each addition of a block, though several calls may take it as a step."""
    additions = len(reading.places)
    numbers = list(dict.fromkeys(step.increment_at.number % additions for step in own))
    for nth, number in enumerate(numbers):
        here = [step for step in own if step.increment_at.number % additions == number]
        asked = [step for step in wanted if step in here]
        if not asked:
            continue
        if len(asked) < len(here):
            names = ", ".join(repr(step.name) for step in here)
            raise Untraceable(f"it runs several times, so that {names} go together")
        step, shape = asked[0], reading.shapes[number]
        if step.increment_at.axis != 0:
            raise Untraceable("its first axis does not count the samples")
        branch = [model.get_submodule(path) for path in step.branch]
        axis = channel_axis(shape, branch) or channel_axis(shape, [block])
        if axis is None:
            raise Untraceable(f"where the channels of a rate of shape {shape} lie cannot be told")
        child = child_name(block, nth)
        yield Socket(step.name, step.module, child, nth, step.stage, shape, axis, step, reading)


def child_name(block: nn.Module, nth: int) -> str:
    """Name the next gate on the nth step of a block.

    Raises:
        Untraceable: If the block has something else of that name.
    """
    there = 0
    if isinstance(block, Gated):
        there = sum(gate.nth == nth for gate in block.gated_plan.gates)
    name = gate_name(nth, there)
    if hasattr(block, name):
        raise Untraceable(f"it has something called {name!r} already")
    return name


def position_sockets(
    model: nn.Module, named: Sequence[Position], args: Any, kwargs: Any, where: Where
) -> list[Socket]:
    """Look at the named positions that `where` chooses.

    Raises:
        StepError: If it chooses none, or one that does not run or has no channels.
    """
    picked = chosen(named, where, kind="position", network=type(model).__name__)
    calls = calls_of(model, [position.name for position in picked], args, kwargs)
    sockets: list[Socket] = []
    refused: dict[str, str] = {}
    for position in picked:
        block = model.get_submodule(position.name)
        try:
            sockets.append(_at(position, block, calls[position.name], sockets))
        except Untraceable as reason:
            refused[position.name] = str(reason)
    if refused:
        raise StepError(refusal("A module", "position", refused, len(picked)))
    return sockets


def _at(position: Position, block: nn.Module, calls: list[Call], before: list[Socket]) -> Socket:
    if not calls:
        raise Untraceable("it does not run on the example")
    value = calls[0].result if position.side == "output" else (calls[0].args or (None,))[0]
    if not isinstance(value, Tensor) or value.ndim < 3:
        raise Untraceable("what is there is no batch of maps")
    shape = tuple(value.shape)
    axis = channel_axis(shape, [block]) or 1
    last = before[-1] if before else None
    group = 0 if last is None else last.group + (last.shape != shape)
    child = child_name(block, 0)
    return Socket(position.name, position.name, child, 0, group, shape, axis, side=position.side)


def refusal(what: str, kind: str, refused: Mapping[str, str], of: int) -> str:
    """Say which places cannot take a module and why, reason by reason."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name, reason in refused.items():
        by_reason[reason].append(repr(name))
    parts = []
    for reason, names in by_reason.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        parts.append(f"{', '.join(names[:3])}{more} ({reason.rstrip('.')})")
    kinds = kind + ("s" if of > 1 else "")
    return (
        f"{what} cannot be attached to {len(refused)} of {of} {kinds}: {'; '.join(parts)}. "
        "Nothing was changed; choose others with `where=`."
    )


def calls_of(
    model: nn.Module, paths: Iterable[str], args: Any, kwargs: Any
) -> dict[str, list[Call]]:
    """Run the network once, in evaluation, and keep every call of some of its modules.

    Raises:
        StepError: If it cannot be run on these arguments.
    """
    keepers = {path: _Keeper() for path in paths}
    with ExitStack() as hooks, plain_run(model):
        for path, keeper in keepers.items():
            block = model.get_submodule(path)
            hooks.enter_context(block.register_forward_pre_hook(keeper.enter, with_kwargs=True))
            hooks.enter_context(block.register_forward_hook(keeper.leave, prepend=True))
        try:
            model(*args, **kwargs)
        except Exception as error:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors_in((args, kwargs)))
            reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
            raise StepError(
                f"{type(model).__name__} cannot be run on inputs of shape {shapes}: {reason}. "
                "Give an `example` that the network takes."
            ) from error
    return {path: keeper.calls for path, keeper in keepers.items()}


class _Keeper:
    """Keeps what goes into a module and what comes out of it, during one pass."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._entered: list[tuple[Any, Any]] = []

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._entered.append((copied(args), copied(kwargs)))

    def leave(self, module: nn.Module, args: Any, result: Any) -> None:
        self.calls.append(Call(*self._entered.pop(), copied(result)))
